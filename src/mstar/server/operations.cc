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

void metrics(ServerContext& context, const HttpRequest&, Writer writer) {
  MetricsText text;
  context.metrics().append(text);
  text.add("mstar_ready",
           "gauge",
           "1 while requests are taken.",
           context.unready_reason().empty() ? 1.0 : 0.0);
  if (const auto backend = context.find_backend()) {
    backend->append_metrics(text);
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
