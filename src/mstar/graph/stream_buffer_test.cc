#include "mstar/graph/stream_buffer.h"

#include <gtest/gtest.h>

#include <random>

#include "mstar/base/error.h"

namespace mstar::graph {
namespace {

using Items = std::vector<int>;

struct Chunk {
  Items items;
  int64_t start = 0;
  int64_t context = 0;
  bool is_final = false;

  bool operator==(const Chunk&) const = default;
};

class Stream {
 public:
  Stream(const ChunkPolicy& policy, int64_t capacity) : buffer(policy, capacity, payloads) {}

  PushResult push(int item) {
    const PayloadId payload = payloads.add(item);
    const PushResult result = buffer.push(payload);
    if (result != PushResult::kAccepted) payloads.release(payload);
    return result;
  }

  Chunk pop() {
    const std::optional<StreamChunk> chunk = buffer.peek();
    if (!chunk) {
      ADD_FAILURE() << "no chunk";
      return {};
    }
    Chunk seen{{}, chunk->start_offset, chunk->context_items, chunk->is_final};
    EXPECT_EQ(chunk->chunk_index, num_chunks++);
    for (PayloadId item : chunk->items) seen.items.push_back(payloads.get(item)[0]);
    woke = buffer.pop(*chunk);
    return seen;
  }

  std::vector<Chunk> pop_all() {
    std::vector<Chunk> chunks;
    while (buffer.peek()) chunks.push_back(pop());
    return chunks;
  }

  PayloadTable<int> payloads;
  StreamBuffer buffer;
  int64_t num_chunks = 0;
  bool woke = false;
};

TEST(StreamBuffer, SlidingWindow) {
  Stream stream(ChunkPolicy::sliding_window(4, 2), 16);
  for (int item = 0; item < 3; ++item) stream.push(item);
  EXPECT_FALSE(stream.buffer.peek());
  stream.push(3);
  stream.push(4);
  EXPECT_EQ(stream.pop(), (Chunk{{0, 1, 2, 3}, 0, 0, false}));
  EXPECT_FALSE(stream.buffer.peek());
  stream.push(5);
  EXPECT_EQ(stream.pop(), (Chunk{{2, 3, 4, 5}, 2, 2, false}));
  // The overlap comes once more, as the final chunk.
  stream.buffer.close();
  EXPECT_EQ(stream.pop(), (Chunk{{4, 5}, 4, 2, true}));
  EXPECT_FALSE(stream.buffer.peek());
  EXPECT_TRUE(stream.buffer.is_finished());
  EXPECT_EQ(stream.payloads.num_live(), 0u);
}

TEST(StreamBuffer, LeftContext) {
  Stream stream(ChunkPolicy::left_context(3, 2), 16);
  for (int item = 0; item < 8; ++item) stream.push(item);
  EXPECT_EQ(stream.pop(), (Chunk{{0, 1, 2}, 0, 0, false}));
  EXPECT_EQ(stream.pop(), (Chunk{{1, 2, 3, 4, 5}, 1, 2, false}));
  EXPECT_FALSE(stream.buffer.peek());
  stream.buffer.close();
  EXPECT_EQ(stream.pop(), (Chunk{{4, 5, 6, 7}, 4, 2, true}));
}

TEST(StreamBuffer, TheLastFullChunkIsFinalWhenTheEndIsKnown) {
  Stream stream(ChunkPolicy::fixed(2), 16);
  for (int item = 0; item < 4; ++item) stream.push(item);
  stream.buffer.close();
  EXPECT_EQ(stream.pop(), (Chunk{{0, 1}, 0, 0, false}));
  EXPECT_EQ(stream.pop(), (Chunk{{2, 3}, 2, 0, true}));
  EXPECT_FALSE(stream.buffer.peek());
}

TEST(StreamBuffer, AnEmptyChunkIsFinalWhenTheEndComesLater) {
  Stream stream(ChunkPolicy::fixed(2), 16);
  stream.push(0);
  stream.push(1);
  EXPECT_EQ(stream.pop(), (Chunk{{0, 1}, 0, 0, false}));
  EXPECT_FALSE(stream.buffer.peek());
  stream.buffer.close();
  EXPECT_EQ(stream.pop(), (Chunk{{}, 2, 0, true}));
  EXPECT_FALSE(stream.buffer.peek());
}

TEST(StreamBuffer, AStreamWithoutItemsEndsWithOneEmptyChunk) {
  Stream stream(ChunkPolicy::sliding_window(28, 7), 64);
  stream.buffer.close();
  EXPECT_EQ(stream.pop_all(), (std::vector<Chunk>{{{}, 0, 0, true}}));
}

TEST(StreamBuffer, AnEndBetweenPeekAndPopComesWithItsOwnChunk) {
  Stream stream(ChunkPolicy::fixed(1), 4);
  stream.push(0);
  const std::optional<StreamChunk> seen = stream.buffer.peek();
  ASSERT_TRUE(seen);
  stream.buffer.close();
  stream.buffer.pop(*seen);
  EXPECT_FALSE(seen->is_final);
  const std::optional<StreamChunk> last = stream.buffer.peek();
  ASSERT_TRUE(last);
  EXPECT_TRUE(last->is_final);
  EXPECT_TRUE(last->items.empty());
}

TEST(StreamBuffer, ContinuesAfterTheEndWithoutAFinalChunk) {
  Stream stream(ChunkPolicy::fixed(2, /*continue_after_done=*/true), 4);
  for (int item = 0; item < 3; ++item) stream.push(item);
  stream.buffer.close();
  EXPECT_EQ(stream.pop(), (Chunk{{0, 1}, 0, 0, false}));
  EXPECT_EQ(stream.pop(), (Chunk{{2}, 2, 0, false}));
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(stream.buffer.peek());
    EXPECT_TRUE(stream.buffer.peek()->after_end);
    EXPECT_EQ(stream.pop(), (Chunk{{}, 3, 0, false}));
  }
}

TEST(StreamBuffer, PeekingTwiceGivesTheSameChunk) {
  Stream stream(ChunkPolicy::fixed(2), 4);
  stream.push(0);
  stream.push(1);
  const std::optional<StreamChunk> first = stream.buffer.peek();
  stream.push(2);
  const std::optional<StreamChunk> again = stream.buffer.peek();
  ASSERT_TRUE(first && again);
  EXPECT_EQ(first->chunk_index, again->chunk_index);
  EXPECT_EQ(again->items.size(), 2u);
}

TEST(StreamBuffer, AFullBufferRefusesAndSaysWhenThereIsRoom) {
  Stream stream(ChunkPolicy::sliding_window(4, 1), 4);
  for (int item = 0; item < 4; ++item) EXPECT_EQ(stream.push(item), PushResult::kAccepted);
  EXPECT_EQ(stream.buffer.credit(), 0);
  EXPECT_EQ(stream.push(4), PushResult::kWouldBlock);
  stream.pop();
  EXPECT_TRUE(stream.woke);
  EXPECT_EQ(stream.buffer.credit(), 1);
  EXPECT_EQ(stream.push(4), PushResult::kAccepted);
  stream.pop();
  EXPECT_FALSE(stream.woke);  // nobody waited
}

TEST(StreamBuffer, ACapacityThatHoldsNoChunkIsAnError) {
  PayloadTable<int> payloads;
  EXPECT_THROW(StreamBuffer(ChunkPolicy::left_context(3, 2), 4, payloads), Error);
  StreamBuffer enough(ChunkPolicy::left_context(3, 2), 5, payloads);
}

TEST(StreamBuffer, ItemsShowUpInTheOrderOfTheirPlaces) {
  Stream stream(ChunkPolicy::fixed(1), 8);
  const uint64_t first = *stream.buffer.reserve();
  const uint64_t second = *stream.buffer.reserve();
  stream.buffer.close();
  stream.buffer.fill(second, stream.payloads.add(1));
  EXPECT_FALSE(stream.buffer.peek());  // neither a chunk nor the end
  stream.buffer.fill(first, stream.payloads.add(0));
  EXPECT_EQ(stream.pop_all(), (std::vector<Chunk>{{{0}, 0, 0, false}, {{1}, 1, 0, true}}));
}

TEST(StreamBuffer, CancelGivesEverythingBack) {
  Stream stream(ChunkPolicy::fixed(4), 8);
  stream.push(0);
  const uint64_t place = *stream.buffer.reserve();
  stream.buffer.cancel();
  EXPECT_EQ(stream.payloads.num_live(), 0u);
  EXPECT_EQ(stream.push(1), PushResult::kCancelled);
  stream.buffer.fill(place, stream.payloads.add(2));  // it was on its way
  EXPECT_EQ(stream.payloads.num_live(), 0u);
  EXPECT_FALSE(stream.buffer.peek());
}

// Any order of pushing, filling, popping and ending: every item comes in order, windows are those
// of the policy, exactly one chunk is final and it is the last.
TEST(StreamBuffer, RandomOrders) {
  const ChunkPolicy policies[] = {ChunkPolicy::sliding_window(5, 2),
                                  ChunkPolicy::sliding_window(3, 3),
                                  ChunkPolicy::left_context(4, 2),
                                  ChunkPolicy::left_context(2, 2),
                                  ChunkPolicy::fixed(1),
                                  ChunkPolicy::fixed(3)};
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const ChunkPolicy& policy = policies[seed % std::size(policies)];
    const int num_items = static_cast<int>(random() % 30);
    Stream stream(policy, 6 + static_cast<int64_t>(random() % 6));
    std::vector<std::pair<uint64_t, int>> open;
    std::vector<Chunk> chunks;
    int next = 0;
    while (!stream.buffer.is_finished()) {
      switch (random() % 3) {
        case 0:
          if (next < num_items) {
            if (const auto place = stream.buffer.reserve()) open.emplace_back(*place, next++);
          } else if (!stream.buffer.is_closed()) {
            stream.buffer.close();
          }
          break;
        case 1:
          if (!open.empty()) {
            const size_t at = random() % open.size();
            stream.buffer.fill(open[at].first, stream.payloads.add(open[at].second));
            open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
          }
          break;
        case 2:
          if (stream.buffer.peek()) chunks.push_back(stream.pop());
          break;
      }
    }
    int64_t expected_start = 0;
    int expected_new = 0;
    for (size_t index = 0; index < chunks.size(); ++index) {
      const Chunk& chunk = chunks[index];
      EXPECT_EQ(chunk.is_final, index + 1 == chunks.size());
      EXPECT_EQ(chunk.start, expected_start);
      for (size_t at = 0; at < chunk.items.size(); ++at) {
        EXPECT_EQ(chunk.items[at], chunk.start + static_cast<int64_t>(at));
      }
      EXPECT_EQ(chunk.start + chunk.context, std::max<int64_t>(chunk.start, expected_new));
      expected_new = static_cast<int>(chunk.start + static_cast<int64_t>(chunk.items.size()));
      const int64_t window = policy.window(index == 0);
      EXPECT_TRUE(chunk.is_final || static_cast<int64_t>(chunk.items.size()) == window);
      expected_start += policy.advance(index == 0);
    }
    EXPECT_EQ(expected_new, num_items);
    EXPECT_EQ(stream.payloads.num_live(), 0u);
  }
}

}  // namespace
}  // namespace mstar::graph
