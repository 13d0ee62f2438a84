// MSCCL's algorithms, evaluated a second time: straight from what the XML means, step by step, with
// no graph, no queue and no machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "orrery/base/rng.h"
#include "orrery/base/time.h"
#include "orrery/formats/chakra.h"
#include "orrery/job/astra.h"

namespace orrery::job {
namespace {

constexpr int kGpus = 5;
constexpr std::int64_t kBytes = 1'200'000, kChunks = 12;

struct Step {
  char type = 's';  // s, r, b (receives, then sends), c (copies)
  int count = 1;
  int on_block = -1, on_step = -1;
};
struct Block {
  int gpu = 0, id = 0, to = -1, from = -1, channel = 0;
  std::vector<Step> steps;
};

// Messages drawn one behind the other, each as a send and a receive at the ends of their thread
// blocks, so that an order exists in which all can run.
class Algorithm {
 public:
  explicit Algorithm(std::uint64_t seed) : state_(seed) {
    for (int m = 0; m < 24; ++m) {
      const int from = Draw(kGpus), to = (from + 1 + Draw(kGpus - 1)) % kGpus;
      const int channel = Draw(2), count = 1 + Draw(3);
      Block& sender = BlockOf(from, to, channel, true);
      Append(&sender, {.type = 's', .count = count});
      Block& receiver = BlockOf(to, from, channel, false);
      Append(&receiver, {.type = 'r', .count = count});
      if (Draw(3) == 0) Append(&receiver, {.type = 'c', .count = 1});
    }
  }

  std::string Xml() const {
    std::string xml = "<algo name=\"drawn\" nchunksperloop=\"" + std::to_string(kChunks) + "\">";
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      xml += "<gpu id=\"" + std::to_string(gpu) + "\">";
      for (const Block& b : blocks_) {
        if (b.gpu != gpu) continue;
        xml += "<tb id=\"" + std::to_string(b.id) + "\" send=\"" + std::to_string(b.to) +
               "\" recv=\"" + std::to_string(b.from) + "\" chan=\"" + std::to_string(b.channel) +
               "\">";
        for (std::size_t s = 0; s < b.steps.size(); ++s) {
          const Step& step = b.steps[s];
          const char* type = step.type == 's' ? "s" : step.type == 'r' ? "rrc" : "cpy";
          xml += "<step s=\"" + std::to_string(s) + "\" type=\"" + type + "\" cnt=\"" +
                 std::to_string(step.count) + "\" depid=\"" + std::to_string(step.on_block) +
                 "\" deps=\"" + std::to_string(step.on_step) + "\"/>";
        }
        xml += "</tb>";
      }
      xml += "</gpu>";
    }
    return xml + "</algo>";
  }

  // When each GPU's last step ends. A step begins when the one before it in its thread block and
  // the one it depends on have ended; a message of n chunks takes two hops of 700 ns and its bytes
  // over 50 · 2^30 byte/s, cut to whole ns; a send and a receive end with it; a copy takes 1 ns.
  // The n-th send to a peer over a channel of a size meets the n-th receive.
  std::vector<std::int64_t> Ends() const {
    std::map<const Step*, std::int64_t> ends;
    std::vector<std::int64_t> gpus(kGpus, 0);
    const auto begins = [&](const Block& b, std::size_t s, std::int64_t* at) {
      *at = 0;
      const Step* on[2] = {s > 0 ? &b.steps[s - 1] : nullptr, nullptr};
      if (b.steps[s].on_block >= 0) on[1] = &Find(b.gpu, b.steps[s].on_block, b.steps[s].on_step);
      for (const Step* other : on) {
        if (other == nullptr) continue;
        if (!ends.contains(other)) return false;
        *at = std::max(*at, ends.at(other));
      }
      return true;
    };
    for (bool more = true; more;) {
      more = false;
      for (const Block& b : blocks_) {
        for (std::size_t s = 0; s < b.steps.size(); ++s) {
          const Step& step = b.steps[s];
          std::int64_t at = 0;
          if (ends.contains(&step) || step.type == 'r' || !begins(b, s, &at)) continue;
          more = true;
          if (step.type == 'c') {
            ends[&step] = at + 1;
            continue;
          }
          const double bytes = static_cast<double>(kBytes / kChunks * step.count);
          ends[&step] = at + static_cast<std::int64_t>(1400 + bytes / (50.0 * (1 << 30) / 1e9));
        }
        // A receive ends when its message has come and it has begun.
        for (std::size_t s = 0; s < b.steps.size(); ++s) {
          const Step& step = b.steps[s];
          std::int64_t at = 0;
          if (ends.contains(&step) || step.type != 'r' || !begins(b, s, &at)) continue;
          const Step* sent = SenderOf(b, s);
          if (sent == nullptr || !ends.contains(sent)) continue;
          more = true;
          ends[&step] = std::max(at, ends.at(sent));
        }
      }
    }
    for (const Block& b : blocks_) {
      for (const Step& step : b.steps) {
        auto& gpu = gpus[static_cast<std::size_t>(b.gpu)];
        gpu = ends.contains(&step) ? std::max(gpu, ends.at(&step)) : -1;
      }
    }
    return gpus;
  }

 private:
  int Draw(int below) {
    state_ = Mix64(state_ + 1);
    return static_cast<int>(state_ % static_cast<std::uint64_t>(below));
  }
  Block& BlockOf(int gpu, int peer, int channel, bool sends) {
    for (Block& b : blocks_) {
      if (b.gpu == gpu && b.channel == channel && (sends ? b.to : b.from) == peer) return b;
    }
    Block b{.gpu = gpu, .id = 0, .channel = channel};
    for (const Block& other : blocks_) b.id += other.gpu == gpu ? 1 : 0;
    (sends ? b.to : b.from) = peer;
    blocks_.push_back(b);
    return blocks_.back();
  }
  // Now and then behind a step of another thread block of the GPU, which stands already.
  void Append(Block* block, Step step) {
    if (Draw(2) == 0) {
      const Block& other =
          blocks_[static_cast<std::size_t>(Draw(static_cast<int>(blocks_.size())))];
      if (other.gpu == block->gpu && other.id != block->id && !other.steps.empty()) {
        step.on_block = other.id;
        step.on_step = Draw(static_cast<int>(other.steps.size()));
      }
    }
    block->steps.push_back(step);
  }
  const Step& Find(int gpu, int id, int step) const {
    const auto at =
        std::ranges::find_if(blocks_, [&](const Block& b) { return b.gpu == gpu && b.id == id; });
    return at->steps[static_cast<std::size_t>(step)];
  }
  const Step* SenderOf(const Block& receiver, std::size_t s) const {
    int number = 0;
    for (std::size_t i = 0; i < s; ++i) {
      const Step& step = receiver.steps[i];
      number += step.type == 'r' && step.count == receiver.steps[s].count ? 1 : 0;
    }
    for (const Block& b : blocks_) {
      if (b.gpu != receiver.from || b.to != receiver.gpu || b.channel != receiver.channel) continue;
      for (const Step& step : b.steps) {
        if (step.type == 's' && step.count == receiver.steps[s].count && number-- == 0)
          return &step;
      }
    }
    return nullptr;
  }

  std::uint64_t state_;
  std::vector<Block> blocks_;
};

TEST(Msccl, AsTheXmlMeansIt) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "astra_msccl";
  std::filesystem::create_directories(folder);
  const auto write = [&folder](const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return (folder / name).string();
  };
  formats::ChakraNode node;
  node.type = formats::ChakraNodeType::kCollective;
  node.collective = formats::ChakraCollective::kAllReduce;
  node.comm_size = kBytes;
  node.has = formats::ChakraNode::kCommType | formats::ChakraNode::kCommSize;
  formats::ChakraWriter writer;
  writer.Add(node, "c", "", {});
  const std::string trace = writer.Release();
  for (int r = 0; r < kGpus; ++r) write("w." + std::to_string(r) + ".et", trace);
  AstraOptions options;
  options.workload_configuration = (folder / "w").string();
  options.remote_memory_configuration =
      write("memory.json", R"({"memory-type": "NO_MEMORY_EXPANSION"})");
  options.network_configuration = write(
      "network.yml", "topology: [Switch]\nnpus_count: [5]\nbandwidth: [50]\nlatency: [700]\n");
  std::int64_t latest = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Algorithm algorithm(1000 * seed);
    const std::string xml = write("algorithm.xml", algorithm.Xml());
    options.system_configuration =
        write("system.json", R"({"scheduling-policy": "LIFO", "preferred-dataset-splits": 1,
          "active-chunks-per-dimension": 1, "all-reduce-implementation": ["ring"],
          "all-reduce-implementation-custom": [")" +
                                 xml + "\"]}");
    const auto result = SimulateAstra(options);
    ASSERT_TRUE(result.ok()) << seed << ": " << result.status().message();
    const std::vector<std::int64_t> ends = algorithm.Ends();
    for (std::size_t r = 0; r < ends.size(); ++r) {
      ASSERT_GE(ends[r], 0) << seed << ": the second evaluation stalls";
      EXPECT_EQ(result->record.classes[r].finish_time, ends[r] * kNanosecond)
          << seed << ", GPU " << r;
      latest = std::max(latest, ends[r]);
    }
  }
  EXPECT_GT(latest, 10'000);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace orrery::job
