#include "orrery/formats/pickle.h"

#include <gtest/gtest.h>

#include <random>

#include "orrery/formats/memory_snapshot.h"

namespace orrery::formats {
namespace {

using ValueKind = Pickle::Kind;
using namespace std::string_literals;

std::string Message(const std::string& bytes, const PickleLimits& limits = {}) {
  return Pickle::Parse(bytes, "f", limits).status().message();
}

// {"a": [1, -2, 70000, 2**40], "b": (True, None, 1.5), "c": b"x"} by Python's pickle, protocol 4.
const std::string kSample =
    "\x80\x04\x95\x34\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
    "a\x94]\x94(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01"
    "e\x8c\x01"
    "b\x94\x88NG?\xf8\x00\x00\x00\x00\x00\x00\x87\x94\x8c\x01"
    "c\x94"
    "C\x01"
    "x\x94u."s;

TEST(Pickle, DataIsRead) {
  const auto p = Pickle::Parse(kSample, "f");
  ASSERT_TRUE(p.ok()) << p.status().message();
  Pickle::Id list = 0, tuple = 0, bytes = 0;
  ASSERT_TRUE(p->Find(p->root(), "a", &list) && p->Find(p->root(), "b", &tuple) &&
              p->Find(p->root(), "c", &bytes));
  EXPECT_FALSE(p->Find(p->root(), "d", &list));
  std::vector<std::int64_t> numbers;
  for (const Pickle::Id id : p->items(list)) numbers.push_back(p->integer(id));
  EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, -2, 70000, std::int64_t{1} << 40}));
  EXPECT_EQ(p->kind(p->items(tuple)[1]), ValueKind::kNone);
  EXPECT_EQ(p->kind(p->items(tuple)[2]), ValueKind::kFloat);
  EXPECT_EQ(p->text(bytes), "x");
}

// The same list twice, by the memo; and one that holds itself.
TEST(Pickle, ValuesAreShared) {
  const auto twice = Pickle::Parse("\x80\x02]q\x01K\x07\x61h\x01\x86."s, "f");
  ASSERT_TRUE(twice.ok()) << twice.status().message();
  const auto& items = twice->items(twice->root());
  EXPECT_EQ(items[0], items[1]);
  EXPECT_EQ(twice->integer(twice->items(items[0])[0]), 7);
  const auto circle = Pickle::Parse("\x80\x02]q\x01h\x01\x61."s, "f");
  ASSERT_TRUE(circle.ok());
  EXPECT_EQ(circle->items(circle->root())[0], circle->root());
}

// cos.system(("touch canary",)), as `pickle.dumps` of an object with __reduce__ writes it.
TEST(Pickle, NothingIsNamedOrCalled) {
  EXPECT_EQ(Message("\x80\x02"
                    "cos\nsystem\nq\x00X\x02\x00\x00\x00idq\x01\x85q\x02Rq\x03."s),
            "f: offset 2: opcode GLOBAL: a pickle is read as data here, which needs none of it");
  EXPECT_EQ(Message("\x80\x04\x8c\x02os\x8c\x06system\x93."s).substr(0, 35),
            "f: offset 14: opcode STACK_GLOBAL: ");
  for (const char* opcodes : {"N)R.", "N)b.", "\x82\x01.", "Nq\x01Q.", "N}\x92."}) {
    EXPECT_NE(Message("\x80\x04"s + opcodes).find("opcode"), std::string::npos) << opcodes;
  }
}

TEST(Pickle, BudgetsHold) {
  EXPECT_EQ(Message("\x80\x02]q\x01"s + std::string(100, '2') + "."s, {.values = 50}),
            "f: offset 105: the end, with 101 values left");
  std::string many = "\x80\x02]q\x01("s;
  for (int i = 0; i < 100; ++i) many += "h\x01";
  EXPECT_NE(Message(many + "e.", {.values = 50}).find("more than 50 values"), std::string::npos);
  EXPECT_NE(Message("\x80\x04"s + std::string(65, '(')).find("deeper than 64"), std::string::npos);
  EXPECT_NE(Message("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx."s).find("is cut off"),
            std::string::npos);
  EXPECT_NE(Message("\x80\x04\x8b\xff\xff\xff\x7f."s).find("a number of"), std::string::npos);
}

// Prefixes and changed bytes of the sample end in a value or a message, never otherwise.
TEST(Pickle, DamageIsNamed) {
  for (std::size_t n = 0; n < kSample.size(); ++n) {
    EXPECT_FALSE(Pickle::Parse(kSample.substr(0, n), "f").ok()) << n;
  }
  std::mt19937 draw(7);
  for (int i = 0; i < 100000; ++i) {
    std::string damaged = kSample;
    for (int k = 0; k < 3; ++k) damaged[draw() % damaged.size()] = static_cast<char>(draw());
    const auto p = Pickle::Parse(damaged, "f");
    if (p.ok()) p->items(p->root());
  }
}

// {"device_traces": [], "segments": [s, s]} with s = {"total_size": 2^50, "blocks": []}: twice as
// much as is possible, and 2^13 of them would leave the type.
TEST(MemorySnapshot, SegmentsHaveALimitTogether) {
  const std::string segment =
      "}q\x01(X\x0a\x00\x00\x00total_size\x8a\x07\x00\x00\x00\x00\x00\x00\x04"
      "X\x06\x00\x00\x00"
      "blocks]u"s;
  const std::string pickle =
      "\x80\x02}(X\x0d\x00\x00\x00"
      "device_traces]X\x08\x00\x00\x00segments]("s +
      segment + "h\x01" + "eu."s;
  EXPECT_EQ(ParseMemorySnapshot(pickle, "f").status().message(),
            "f: segments: 'total_size': 2251799813685248 in all");
}

}  // namespace
}  // namespace orrery::formats
