// Random page operations on a small cache against vectors of tokens.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "mstar/resources/kv_cache.h"
#include "mstar/resources/test_rig.h"

namespace mstar {
namespace {

constexpr int64_t kPageSize = 4;
constexpr int32_t kNumRequests = 4;
constexpr int32_t kNumLabels = 3;
constexpr int64_t kNumLayers = 2;

// What a stream should be: every token it ever held, and which of them are resident.
struct ModelStream {
  std::vector<uint64_t> keys;
  std::vector<int64_t> resident;  // indices into keys
  RetentionPolicy policy;
  bool has_policy = false;

  // The number that stands for the token in memory: it depends on all tokens before.
  float value(int64_t index) const {
    uint64_t hash = 17;
    for (int64_t token = 0; token <= index; ++token) {
      hash = (hash * 31 + keys[static_cast<size_t>(token)] + 1) % 1000003;
    }
    return static_cast<float>(hash);
  }

  void append(uint64_t key) {
    keys.push_back(key);
    resident.push_back(static_cast<int64_t>(keys.size()) - 1);
  }

  // Whole pages of the oldest tokens beyond the page on which the prefix ends.
  void retain() {
    const int64_t kept = (policy.protected_prefix + kPageSize - 1) / kPageSize * kPageSize;
    const auto unprotected = [&] {
      return static_cast<int64_t>(resident.size()) - policy.protected_prefix;
    };
    const int64_t budget_before = std::min(policy.context_budget, unprotected());
    while (has_policy && unprotected() - policy.context_budget >= kPageSize &&
           static_cast<int64_t>(resident.size()) >= kept + kPageSize) {
      resident.erase(resident.begin() + kept, resident.begin() + kept + kPageSize);
    }
    EXPECT_TRUE(!has_policy || unprotected() >= budget_before) << "dropped inside the budget";
  }
};

class KvProperty : public ::testing::TestWithParam<uint32_t> {
 protected:
  KvProperty()
      : rig_({{"kv",
               KVSpec{.num_layers = kNumLayers,
                      .num_kv_heads = 1,
                      .head_dim = 1,
                      .page_size = kPageSize,
                      .max_num_pages = 40,
                      .dtype = DType::kF32,
                      .cpu_offload_pages = 20,
                      .prefix_cache = true}}}),
        kv_(rig_.get<KvCache>("kv")),
        random_(GetParam()) {
    for (int32_t label = 1; label < kNumLabels; ++label) {
      rig_.labels.intern("label" + std::to_string(label));
    }
  }

  ~KvProperty() override {
    for (int32_t request = 0; request < kNumRequests; ++request) {
      kv_.remove_request(request);
    }
    kv_.clear_prefix_index();
    EXPECT_EQ(kv_.stats().num_free, kv_.stats().num_pages);
    EXPECT_EQ(kv_.stats().num_host_free, 20);
  }

  int64_t pick(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  bool open(RequestHandle request) const { return open_.contains(request); }

  ModelStream& model(RequestHandle request, LabelId label) { return model_[{request, label}]; }

  void ingest(RequestHandle request) {
    KVRequestConfig config;
    std::vector<uint64_t> keys(static_cast<size_t>(1 + pick(20)));
    for (uint64_t& key : keys) {
      key = static_cast<uint64_t>(pick(2));
    }
    config.prefix_keys = {{kMainLabel, keys}};
    kv_.ingest_request(request, config);
    open_.insert({request, keys});
    const int64_t num_cached = kv_.apply_cached_prefix(request, kMainLabel);
    EXPECT_EQ(num_cached % kPageSize, 0);
    EXPECT_LT(num_cached, static_cast<int64_t>(keys.size()));
    for (int64_t token = 0; token < num_cached; ++token) {
      model(request, kMainLabel).append(keys[static_cast<size_t>(token)]);
    }
  }

  void remove(RequestHandle request) {
    kv_.remove_request(request);
    open_.erase(request);
    std::erase_if(model_, [&](const auto& item) { return item.first.first == request; });
  }

  // Next keys of a stream: the prompt where it is known, else anything.
  std::vector<uint64_t> next_keys(RequestHandle request, LabelId label, int64_t count) {
    std::vector<uint64_t> keys;
    const size_t begin = model(request, label).keys.size();
    for (size_t index = begin; index < begin + static_cast<size_t>(count); ++index) {
      const std::vector<uint64_t>& prompt = open_.at(request);
      keys.push_back(label == kMainLabel && index < prompt.size() ? prompt[index]
                                                                  : static_cast<uint64_t>(pick(2)));
    }
    return keys;
  }

  void step() {
    const bool commit = pick(4) != 0;
    SubmoduleStep declared;
    KVStep& kv = declared.kv.add(0);
    kv.commit = commit;
    const auto before = model_;
    std::map<std::pair<RequestHandle, LabelId>, std::vector<uint64_t>> added;
    for (RequestHandle request = 0; request < kNumRequests; ++request) {
      if (!open(request) || pick(3) == 0) {
        continue;
      }
      if (pick(5) == 0) {
        const auto from = static_cast<LabelId>(pick(kNumLabels));
        const auto to = static_cast<LabelId>(pick(kNumLabels));
        if (from != to) {
          kv.pre_forks.push_back({request, from, to});
          model(request, to) = model(request, from);
        }
      }
      for (LabelId label = 0; label < kNumLabels; ++label) {
        if (pick(2) == 0) {
          const int64_t span = pick(4) == 0 ? pick(11) : pick(2);
          declared.add_segment(request, label, static_cast<int32_t>(span));
          added[{request, label}] = next_keys(request, label, span);
        }
      }
    }
    if (declared.segments.empty()) {
      kv.pre_forks.clear();
      model_ = before;
      return;
    }
    if (pick(4) == 0) {
      kv.retentions = {{static_cast<LabelId>(pick(kNumLabels)), {pick(12), pick(9)}}};
    }
    submit(declared, added, before);
  }

  void submit(const SubmoduleStep& declared,
              const std::map<std::pair<RequestHandle, LabelId>, std::vector<uint64_t>>& added,
              const std::map<std::pair<RequestHandle, LabelId>, ModelStream>& before) {
    const KVStep& kv = *declared.kv.find(0);
    const StepContext context{.slot = static_cast<int32_t>(pick(2))};
    Reservation reservation = rig_.runner().reserve(declared, context);
    if (!reservation) {
      model_ = before;
      if (reservation.outcome().ready) {
        EXPECT_EQ(reservation.outcome().reason, AdmitReason::kAllocationFailed);
        EXPECT_GT(reservation.outcome().pages_short, 0);
      } else {
        EXPECT_TRUE(kv_.is_offloaded(reservation.outcome().request));
      }
      return;
    }
    kv_.check_invariants();
    if (pick(6) == 0) {  // given up before it was planned
      model_ = before;
      return;
    }
    if (kv.commit) {
      for (const auto& [stream, keys] : added) {
        if (stream.second == kMainLabel) {
          extend_keys(stream.first, keys);
        }
      }
    }
    reservation.plan();
    reservation.stage(rig_.stream());
    write(declared, context, added);
    const auto planned = model_;
    reservation.commit();
    if (!kv.commit) {
      return;
    }
    for (const auto& [stream, keys] : added) {
      ModelStream& grown = model(stream.first, stream.second);
      std::for_each(keys.begin(), keys.end(), [&](uint64_t key) { grown.append(key); });
      for (const LabelRetention& retention : kv.retentions) {
        if (retention.label == stream.second) {
          grown.policy = retention.policy;
          grown.has_policy = true;
        }
      }
      grown.retain();
    }
    if (pick(5) == 0) {  // a late stop takes one request's tokens back
      const RequestHandle request = declared.segments[0].request;
      rig_.runner().discard(declared, context, request, pick(2) == 0);
      for (LabelId label = 0; label < kNumLabels; ++label) {
        if (added.contains({request, label})) {
          const ModelStream now = model(request, label);
          model(request, label) = planned.at({request, label});
          model(request, label).policy = now.policy;
          model(request, label).has_policy = now.has_policy;
        }
      }
    }
  }

  // Generated tokens join the chain; those of the prompt are known already.
  void extend_keys(RequestHandle request, const std::vector<uint64_t>& keys) {
    const CacheStream* stream = kv_.find_stream(request, kMainLabel);
    const auto stored = static_cast<size_t>(stream->stored_len);
    if (!stream->keys.empty() && stream->keys.size() >= stored) {
      const size_t num_known = std::min(keys.size(), stream->keys.size() - stored);
      kv_.extend_prefix_keys(request, kMainLabel, std::span(keys).subspan(num_known));
    }
  }

  void write(const SubmoduleStep& declared,
             const StepContext& context,
             const std::map<std::pair<RequestHandle, LabelId>, std::vector<uint64_t>>& added) {
    (void)declared;
    for (const KvGroupPlan& group : kv_.groups(context)) {
      std::vector<float> rows;
      for (const SequenceView& view : group.sequences) {
        ModelStream grown = model(view.request, view.label);
        EXPECT_EQ(view.prefix_len, static_cast<int64_t>(grown.resident.size()));
        EXPECT_EQ(view.start, static_cast<int64_t>(grown.keys.size()));
        EXPECT_EQ(view.first_row, static_cast<int64_t>(rows.size()));
        for (const uint64_t key : added.at({view.request, view.label})) {
          grown.append(key);
          rows.push_back(grown.value(static_cast<int64_t>(grown.keys.size()) - 1));
        }
      }
      const Tensor k = Tensor::from(rows, {static_cast<int64_t>(rows.size()), 1, 1});
      for (int32_t layer = 0; layer < kNumLayers; ++layer) {
        kv_.write_kv(rig_.stream(), {&context, group.plan_label, layer}, k, k);
      }
    }
  }

  void expect_streams() {
    kv_.check_invariants();
    for (const auto& [name, expected] : model_) {
      const CacheStream* stream = kv_.find_stream(name.first, name.second);
      if (stream == nullptr || stream->offloaded) {
        EXPECT_TRUE(stream != nullptr || expected.keys.empty());
        continue;
      }
      ASSERT_EQ(stream->stored_len, static_cast<int64_t>(expected.keys.size()));
      ASSERT_EQ(stream->resident_len(), static_cast<int64_t>(expected.resident.size()));
      for (size_t token = 0; token < expected.resident.size(); ++token) {
        const auto place = static_cast<int64_t>(token);
        const int64_t page = stream->pages[static_cast<int32_t>(place / kPageSize)];
        for (int64_t layer = 0; layer < kNumLayers; ++layer) {
          for (int64_t half = 0; half < 2; ++half) {
            const Tensor row = kv_.memory().layer_view(layer).select(0, page).select(0, half);
            ASSERT_EQ(row.data<float>()[place % kPageSize],
                      expected.value(expected.resident[token]))
                << "request " << name.first << " label " << name.second << " token " << token;
          }
        }
      }
    }
  }

  testing::Rig rig_;
  KvCache& kv_;
  std::mt19937 random_;
  std::map<RequestHandle, std::vector<uint64_t>> open_;  // with its prompt
  std::map<std::pair<RequestHandle, LabelId>, ModelStream> model_;
};

TEST_P(KvProperty, StreamsHoldWhatTheModelHolds) {
  for (int round = 0; round < 400; ++round) {
    const auto request = static_cast<RequestHandle>(pick(kNumRequests));
    switch (pick(12)) {
      case 0:
        if (open(request)) {
          remove(request);
        }
        break;
      case 1:
        if (open(request)) {
          kv_.offload(request);
        }
        break;
      case 2:
        if (open(request)) {
          kv_.reload(request);
        }
        break;
      default:
        if (!open(request)) {
          ingest(request);
        }
        step();
    }
    expect_streams();
    if (HasFatalFailure()) {
      FAIL() << "in round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, KvProperty, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace mstar
