#include "orrery/formats/chakra.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "orrery/formats/gzip.h"

namespace orrery::formats {
namespace {

using ::testing::HasSubstr;

std::string Sample() {
  ChakraWriter writer;
  ChakraNode compute;
  compute.id = 3;
  compute.type = ChakraNodeType::kCompute;
  compute.duration_us = 250;
  compute.num_ops = 1'000'000;
  compute.tensor_size = 4096;
  compute.has = ChakraNode::kNumOps | ChakraNode::kTensorSize | ChakraNode::kCpuOp;
  writer.Add(compute, "layer 0", "", {});
  ChakraNode all_reduce;
  all_reduce.id = 300;
  all_reduce.type = ChakraNodeType::kCollective;
  all_reduce.collective = ChakraCollective::kAllReduce;
  all_reduce.comm_size = std::uint64_t{1} << 33;
  all_reduce.priority = 2;
  all_reduce.involved_dims = 4;
  all_reduce.involved = 0b1011;
  all_reduce.has = ChakraNode::kCommType | ChakraNode::kCommSize | ChakraNode::kInvolvedDim;
  const std::uint64_t deps[] = {3};
  writer.Add(all_reduce, "grads", "12", deps);
  return writer.Release();
}

std::string Gzipped(const std::string& bytes) {
  std::string out(compressBound(bytes.size()) + 64, '\0');
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

void ExpectSample(const ChakraTrace& trace) {
  ASSERT_EQ(trace.size(), 2u);
  const ChakraNode& compute = trace.nodes[0];
  EXPECT_EQ(trace.version, "0.0.4");
  EXPECT_EQ(compute.id, 3u);
  EXPECT_EQ(compute.type, ChakraNodeType::kCompute);
  EXPECT_EQ(compute.duration_us, 250u);
  EXPECT_EQ(compute.num_ops, 1'000'000u);
  EXPECT_EQ(trace.text(compute.name), "layer 0");
  const ChakraNode& all_reduce = trace.nodes[1];
  EXPECT_EQ(all_reduce.collective, ChakraCollective::kAllReduce);
  EXPECT_EQ(all_reduce.comm_size, std::uint64_t{1} << 33);
  EXPECT_EQ(all_reduce.priority, 2u);
  EXPECT_EQ(all_reduce.involved_dims, 4);
  EXPECT_EQ(all_reduce.involved, 0b1011);
  EXPECT_EQ(trace.text(all_reduce.group), "12");
  ASSERT_EQ(trace.deps_of(1).size(), 1u);
  EXPECT_EQ(trace.deps_of(1)[0], 3u);
}

TEST(Chakra, ReadsWhatItWrites) {
  const std::string bytes = Sample();
  EXPECT_TRUE(SniffChakra(bytes));
  const auto trace = ParseChakra(bytes, "a.0.et", 1 << 20);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ExpectSample(*trace);
  const auto inflated = ParseChakra(Gzipped(bytes), "a.0.et.gz", 1 << 20);
  ASSERT_TRUE(inflated.ok()) << inflated.status().message();
  ExpectSample(*inflated);
}

// As the Python package of Chakra writes it: int64 and uint32 attributes, dependencies unpacked.
TEST(Chakra, TakesEveryIntegerType) {
  const auto attribute = [](std::string value) {
    const std::string name =
        "\x0a\x09"
        "comm_size" +
        std::move(value);
    const std::string node = "\x08\x01\x18\x07\x52" + std::string(1, char(name.size())) + name;
    return std::string(
               "\x07\x0a\x05"
               "0.0.4",
               8) +
           std::string(1, char(node.size())) + node;
  };
  const auto size = [&](const std::string& value) -> std::int64_t {
    const auto trace = ParseChakra(attribute(value), "x", 1 << 20);
    return trace.ok() ? static_cast<std::int64_t>(trace->nodes[0].comm_size) : -1;
  };
  EXPECT_EQ(size("\x38\x05"), 5);                                       // int32
  EXPECT_EQ(size("\x48\x05"), 5);                                       // int64
  EXPECT_EQ(size("\x58\x05"), 5);                                       // uint32
  EXPECT_EQ(size("\x68\x05"), 5);                                       // uint64
  EXPECT_EQ(size("\x78\x0a"), 5);                                       // sint32, zigzag
  EXPECT_EQ(size(std::string("\x9d\x01\x05\x00\x00\x00", 6)), 5);       // fixed32
  EXPECT_EQ(size(std::string("\xa9\x01\x05\0\0\0\0\0\0\0", 10)), 5);    // fixed64
  EXPECT_EQ(size("\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -1);  // int64 -1
  const auto real = ParseChakra(attribute(std::string("\x2d\0\0\x80\x3f", 5)), "x", 1 << 20);
  EXPECT_THAT(real.status().message(), HasSubstr("comm_size"));
  EXPECT_THAT(real.status().message(), HasSubstr("a whole number is expected"));
}

// Every cut and every changed byte ends with a trace or an error, never a crash.
TEST(Chakra, SurvivesDamage) {
  const std::string bytes = Sample();
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto trace = ParseChakra(bytes.substr(0, cut), "x", 1 << 20);
    if (trace.ok()) {
      EXPECT_LE(trace->size(), 1u) << cut;
    }
  }
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int mask : {1, 0x80, 0xff}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ mask);
      const auto trace = ParseChakra(damaged, "x", 1 << 20);
      if (trace.ok()) {
        EXPECT_LE(trace->size(), 2u);
      }
    }
  }
  const std::string zipped = Gzipped(bytes);
  for (std::size_t cut = 2; cut < zipped.size(); ++cut) {
    EXPECT_FALSE(ParseChakra(zipped.substr(0, cut), "x", 1 << 20).ok()) << cut;
  }
}

// What does not begin as a trace is not inflated to its end: 5 GiB of zeros took 8 GiB of memory.
TEST(Chakra, ABombIsNotInflated) {
  const auto bomb = ParseChakra(Gzipped(std::string(64 << 20, '\0')), "a.et.gz", 1 << 30);
  ASSERT_FALSE(bomb.ok());
  EXPECT_EQ(bomb.status().message(), "a.et.gz: does not inflate to a Chakra trace");
}

// 64 MiB of zeros in 64 KB: refused at the limit, not inflated whole.
TEST(Gzip, StopsAtItsLimit) {
  const std::string bomb = Gzipped(std::string(64 << 20, '\0'));
  const auto inflated = Gunzip(bomb, 4 << 20, "bomb.gz");
  EXPECT_THAT(inflated.status().message(), HasSubstr("holds more than 4.0 MiB"));
}

TEST(Chakra, IsNotWhatItIsNot) {
  EXPECT_FALSE(SniffChakra("model: gpt3-175b\n"));
  EXPECT_FALSE(SniffChakra("num_ranks 4\n"));
  EXPECT_FALSE(SniffChakra("{\"schema\": 1}"));
  EXPECT_FALSE(SniffChakra(""));
  EXPECT_FALSE(SniffChakra("\n\x04\x08\x01\x10\x02"));
}

}  // namespace
}  // namespace orrery::formats
