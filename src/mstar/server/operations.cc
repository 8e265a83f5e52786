// /health, /ready, /metrics, /version, /v1/models and /walks.
#include "mstar/base/str_cat.h"
#include "mstar/graph/print.h"
#include "mstar/server/api.h"
#include "mstar/server/api_error.h"

namespace mstar {

namespace {

using Writer = std::shared_ptr<ResponseWriter>;

Json modalities_json(const std::vector<Modality>& modalities) {
  Json list = Json::array();
  for (const Modality modality : modalities) {
    list.push_back(graph::to_string(modality));
  }
  return list;
}

Json model_json(const ModelDescription& model) {
  return Json::object({{"id", model.name},
                       {"object", "model"},
                       {"created", 0},
                       {"owned_by", "mstar"},
                       {"root", model.name},
                       {"max_model_len", model.max_model_len},
                       {"family", model.family},
                       {"input_modalities", modalities_json(model.input_modalities)},
                       {"output_modalities", modalities_json(model.output_modalities)},
                       {"parameters", model.parameters.describe()}});
}

void ready(ServerContext& context, const HttpRequest&, Writer writer) {
  const std::string reason = context.unready_reason();
  const bool is_ready = reason.empty();
  HttpResponse response =
      json_response(Json::object({{"status", is_ready ? "ready" : reason}}), is_ready ? 200 : 503);
  if (!is_ready) {
    response.headers.add("Retry-After", "1");
  }
  writer->send(std::move(response));
}

// What dashboards made for vLLM read.
void append_vllm_metrics(ServerContext& context, const Backend& backend, MetricsText& text) {
  const std::string& model = backend.description().name;
  const BackendStats stats = backend.stats();
  const auto add =
      [&](std::string_view name, std::string_view type, std::string_view help, double value) {
        text.begin(name, type, help);
        text.sample({{"model_name", model}}, value);
      };
  int64_t num_pages = 0;
  int64_t num_used = 0;
  int64_t num_hits = 0;
  for (const BackendStats::Cache& cache : stats.caches) {
    num_pages += cache.num_pages;
    num_used += cache.num_pages - cache.num_free;
    num_hits += cache.num_prefix_hits;
  }
  add("vllm:num_requests_running",
      "gauge",
      "Requests on the workers.",
      static_cast<double>(stats.num_running));
  add("vllm:num_requests_waiting",
      "gauge",
      "Requests in the queue.",
      static_cast<double>(stats.num_waiting));
  add("vllm:kv_cache_usage_perc",
      "gauge",
      "Share of KV pages in use, 1 is all.",
      num_pages > 0 ? static_cast<double>(num_used) / static_cast<double>(num_pages) : 0.0);
  add("vllm:prefix_cache_hits_total",
      "counter",
      "Prompt tokens taken from the prefix cache.",
      static_cast<double>(num_hits));
  context.metrics().append_vllm(text, model);
}

void metrics(ServerContext& context, const HttpRequest&, Writer writer) {
  MetricsText text;
  context.metrics().append(text);
  text.add("mstar_ready",
           "gauge",
           "1 while requests are taken.",
           context.unready_reason().empty() ? 1.0 : 0.0);
  const ImageStore::Stats images = context.images().stats();
  text.add("mstar_stored_images",
           "gauge",
           "Pictures that can be fetched by URL.",
           static_cast<double>(images.num_images));
  text.add("mstar_stored_image_bytes",
           "gauge",
           "Bytes of those pictures.",
           static_cast<double>(images.size_bytes));
  text.add("mstar_stored_images_dropped_total",
           "counter",
           "Pictures that went for age or room.",
           static_cast<double>(images.num_dropped));
  if (const auto backend = context.find_backend()) {
    backend->append_metrics(text);
    if (context.options().vllm_metrics) {
      append_vllm_metrics(context, *backend, text);
    }
  }
  writer->send({.status = 200,
                .headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                .body = text.text()});
}

void list_models(ServerContext& context, const HttpRequest&, Writer writer) {
  Json models = Json::array();
  models.push_back(model_json(context.backend()->description()));
  writer->send(json_response(Json::object({{"object", "list"}, {"data", std::move(models)}})));
}

void get_model(ServerContext& context, const HttpRequest& request, Writer writer) {
  const auto backend = context.backend();
  context.check_model(*backend, request.path_values.find("id")->second);
  writer->send(json_response(model_json(backend->description())));
}

// JSON with the drawing in it, or only the drawing for clients that ask for text.
void walks(ServerContext& context, const HttpRequest& request, Writer writer) {
  const graph::ModelGraph graph = context.backend()->graph();
  const std::string mermaid = graph::to_mermaid(graph);
  const std::string* format = request.find_query("format");
  if (format != nullptr && *format == "mermaid") {
    writer->send({.status = 200,
                  .headers = {{"Content-Type", "text/markdown; charset=utf-8"}},
                  .body = mermaid});
    return;
  }
  writer->send(
      json_response(Json::object({{"graph", graph::to_json(graph)}, {"mermaid", mermaid}})));
}

}  // namespace

void add_operation_routes(ServerContext& context, Router& router) {
  const auto add = [&](const char* pattern, auto function) {
    router.add(
        {.method = "GET",
         .pattern = pattern,
         .handler = [&context, function](const HttpRequest& request,
                                         Writer writer) { function(context, request, writer); },
         .is_quick = true});
  };
  add("/health", [](ServerContext&, const HttpRequest&, const Writer& writer) {
    writer->send(json_response(Json::object({{"status", "healthy"}})));
  });
  add("/ready", ready);
  add("/metrics", metrics);
  add("/version", [](ServerContext& shared, const HttpRequest&, const Writer& writer) {
    writer->send(json_response(Json::object({{"version", shared.options().version}})));
  });
  add("/v1/models", list_models);
  add("/v1/models/{id*}", get_model);
  add("/walks", walks);
}

}  // namespace mstar
