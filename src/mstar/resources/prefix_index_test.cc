#include "mstar/resources/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace mstar {
namespace {

using Node = PrefixIndex::Node;

std::vector<uint64_t> keys(std::initializer_list<uint64_t> values) {
  return values;
}

TEST(PrefixIndex, FindsWholePagesOneTokenShort) {
  PagePool pool(8);
  PageList pages(pool);
  ASSERT_TRUE(pages.try_grow(2));
  PrefixIndex index(pool, 2, "salt");
  const Node first = index.insert(PrefixIndex::kRoot, keys({1, 2}), pages[0]);
  index.insert(first, keys({3, 4}), pages[1]);

  EXPECT_EQ(index.count_match(keys({1, 2, 3, 4, 5})), 2);
  EXPECT_EQ(index.count_match(keys({1, 2, 3, 4})), 1);  // the last token must be computed
  EXPECT_EQ(index.count_match(keys({1, 2})), 0);
  EXPECT_EQ(index.count_match(keys({})), 0);
  EXPECT_EQ(index.count_match(keys({9, 2, 3, 4, 5})), 0);
  EXPECT_EQ(index.count_match(keys({1, 2, 9, 4, 5})), 1);
  std::vector<Node> nodes;
  index.match(keys({1, 2, 3, 4, 5}), nodes);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(index.page(nodes[1]), pages[1]);
}

TEST(PrefixIndex, EqualPagesAfterDifferentPastAreDifferent) {
  PagePool pool(8);
  PageList pages(pool);
  ASSERT_TRUE(pages.try_grow(3));
  PrefixIndex index(pool, 1, "");
  const Node one = index.insert(PrefixIndex::kRoot, keys({1}), pages[0]);
  index.insert(one, keys({7}), pages[1]);
  EXPECT_EQ(index.count_match(keys({7, 0})), 0);
  index.insert(PrefixIndex::kRoot, keys({7}), pages[2]);
  std::vector<Node> nodes;
  index.match(keys({7, 0}), nodes);
  EXPECT_EQ(index.page(nodes.at(0)), pages[2]);
}

TEST(PrefixIndex, FirstWriterWins) {
  PagePool pool(8);
  PageList pages(pool);
  ASSERT_TRUE(pages.try_grow(2));
  PrefixIndex index(pool, 1, "");
  const Node first = index.insert(PrefixIndex::kRoot, keys({1}), pages[0]);
  EXPECT_EQ(index.insert(PrefixIndex::kRoot, keys({1}), pages[1]), first);
  EXPECT_EQ(index.num_pages(), 1);
}

TEST(PrefixIndex, EvictsLeastRecentlyUsedLeavesThatNobodyHolds) {
  PagePool pool(8);
  PrefixIndex index(pool, 1, "");
  PageList held(pool);
  Node a = 0;
  {
    PageList pages(pool);
    ASSERT_TRUE(pages.try_grow(4));
    a = index.insert(PrefixIndex::kRoot, keys({1}), pages[0]);
    index.insert(a, keys({2}), pages[1]);
    index.insert(PrefixIndex::kRoot, keys({3}), pages[2]);
    index.insert(PrefixIndex::kRoot, keys({4}), pages[3]);
    held.push_back(pool.share(pages[2]));
  }
  EXPECT_EQ(index.num_pages(), 4);
  std::vector<Node> nodes;
  index.match(keys({1, 2, 0}), nodes);  // used last
  EXPECT_EQ(index.evict(1), 1);
  EXPECT_EQ(index.count_match(keys({4, 0})), 0);
  EXPECT_EQ(index.evict(10), 2) << "child, then parent; the held page stays";
  EXPECT_FALSE(index.is_listed(a));
  EXPECT_EQ(index.count_match(keys({3, 0})), 1);
  held.clear();
  EXPECT_EQ(index.evict(10), 1);
  EXPECT_EQ(pool.num_free(), 7);
}

TEST(PrefixIndex, ChainsOfAnyDepthGoWhole) {
  PagePool pool(65);
  PrefixIndex index(pool, 1, "");
  {
    PageList pages(pool);
    ASSERT_TRUE(pages.try_grow(64));
    Node parent = PrefixIndex::kRoot;
    for (int32_t depth = 0; depth < 64; ++depth) {
      parent = index.insert(parent, keys({static_cast<uint64_t>(depth)}), pages[depth]);
    }
  }
  EXPECT_EQ(index.evict(64), 64);
}

TEST(PrefixIndex, NamesOfPagesThatLeftNameNothing) {
  PagePool pool(4);
  PrefixIndex index(pool, 1, "");
  Node gone = 0;
  {
    const Page page = pool.try_allocate();
    gone = index.insert(PrefixIndex::kRoot, keys({1}), page.id());
  }
  index.clear();
  const Page page = pool.try_allocate();
  const Node other = index.insert(PrefixIndex::kRoot, keys({2}), page.id());
  EXPECT_NE(other, gone) << "the entry is used again under another name";
  EXPECT_EQ(index.insert(gone, keys({5}), page.id()), PrefixIndex::kNone);
}

TEST(PrefixIndex, HiddenPagesAndWhatFollowsAreNotFound) {
  PagePool pool(4);
  PageList pages(pool);
  ASSERT_TRUE(pages.try_grow(2));
  PrefixIndex index(pool, 1, "");
  const Node first = index.insert(PrefixIndex::kRoot, keys({1}), pages[0]);
  index.insert(first, keys({2}), pages[1]);
  index.hide(first);
  EXPECT_EQ(index.count_match(keys({1, 2, 3})), 0);
  EXPECT_EQ(index.insert(first, keys({2}), pages[1]), PrefixIndex::kNone);
  pages.clear();
  EXPECT_EQ(index.evict(5), 2);
}

// Random inserts, lookups and evictions against a map from key strings to pages.
TEST(PrefixIndex, AgreesWithAMap) {
  std::mt19937 random(7);
  PagePool pool(40);
  PrefixIndex index(pool, 2, "x");
  std::map<std::vector<uint64_t>, int32_t> model;  // what was listed when last looked
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint64_t> text(1 + random() % 9);
    for (uint64_t& key : text) {
      key = random() % 2;
    }
    std::vector<Node> nodes;
    index.match(text, nodes);
    std::vector<uint64_t> path;
    for (const Node node : nodes) {
      path.insert(path.end(),
                  text.begin() + static_cast<int64_t>(path.size()),
                  text.begin() + static_cast<int64_t>(path.size()) + 2);
      ASSERT_TRUE(model.contains(path));
      EXPECT_EQ(model[path], index.page(node));
    }
    Node parent = nodes.empty() ? PrefixIndex::kRoot : nodes.back();
    while (path.size() + 2 <= text.size()) {
      Page page = pool.try_allocate();
      if (!page) {
        EXPECT_GT(index.evict(1 + static_cast<int32_t>(random() % 3)), 0);
        break;
      }
      const std::vector<uint64_t> piece(text.begin() + static_cast<int64_t>(path.size()),
                                        text.begin() + static_cast<int64_t>(path.size()) + 2);
      path.insert(path.end(), piece.begin(), piece.end());
      parent = index.insert(parent, piece, page.id());
      model[path] = index.page(parent);
    }
    EXPECT_EQ(pool.num_free() + index.num_pages(), 39);
  }
}

}  // namespace
}  // namespace mstar
