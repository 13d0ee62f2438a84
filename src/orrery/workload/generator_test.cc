// Properties of whole graphs: random plans either are refused with a reason or run to their end.
#include "orrery/workload/generator.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "orrery/base/rng.h"
#include "orrery/graph/verify/verify.h"
#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

using graph::OpKind;

// A rank's point-to-point life: posts and waits, in order. Compute takes no time here.
struct Step {
  enum class Kind { kPost, kWait } kind;
  int message = -1;  // index into messages
};
struct Message {
  bool send = false;
  std::size_t rank = 0, peer = 0;
  std::int32_t tag = 0;
  std::uint32_t stream = 0;
  std::int64_t bytes = 0;
  int batch = -1;  // messages with equal batch end together
  bool posted = false, started = false, done = false;
};

// Runs the exchanges of one rank per stage by the engine's rules: a message starts when it heads
// its stream, was posted, and its partner has started too; returns the ranks that never end.
class ExchangeRun {
 public:
  explicit ExchangeRun(const graph::Graph& g) : graph_(g) {
    for (std::size_t r = 0; r < g.bindings.size(); ++r) {
      if (g.programs[g.bindings[r].program.index()].stage >= 0) Unroll(r);
    }
  }

  std::vector<std::size_t> Stuck() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& [rank, steps] : steps_) moved |= Advance(&steps);
      moved |= Match();
    }
    std::vector<std::size_t> stuck;
    for (const auto& [rank, steps] : steps_) {
      if (!steps.empty()) stuck.push_back(rank);
    }
    for (const Message& m : messages_) {
      if (!m.done) stuck.push_back(m.rank);
    }
    return stuck;
  }

 private:
  void Unroll(std::size_t rank) {
    const graph::Binding& binding = graph_.bindings[rank];
    std::map<int, int> events;  // event → message
    std::deque<Step>& steps = steps_[rank];
    for (const graph::Call& call : graph_.programs[binding.program.index()].calls) {
      const graph::Block& block = graph_.blocks[call.block.index()];
      int batch = -1;            // first message of the group call at hand
      std::uint32_t number = 0;  // and its number
      std::vector<int> blocking;
      for (const graph::Op& op : block.ops) {
        if (op.kind == OpKind::kComm && IsPointToPoint(block.comms[op.index].collective)) {
          const graph::Comm& comm = block.comms[op.index];
          const int id = static_cast<int>(messages_.size());
          if (comm.batch != number) batch = id;
          number = comm.batch;
          messages_.push_back(
              {.send = comm.collective == graph::Collective::kSend,
               .rank = rank,
               .peer = binding.peers[static_cast<std::size_t>(comm.peer.slot())].index(),
               .tag = comm.tag,
               .stream = comm.stream,
               .bytes = comm.bytes.value,
               .batch = comm.batch != 0 ? batch : id});
          streams_[{rank, comm.stream}].push_back(id);
          pairs_[{rank, messages_.back().peer, comm.tag, messages_.back().send}].push_back(id);
          steps.push_back({Step::Kind::kPost, id});
          if (comm.blocking) blocking.push_back(id);
          events[comm.event == graph::kCallEvent ? call.event : comm.event] = id;
        } else if (op.kind == OpKind::kWait) {
          const auto at = events.find(op.event == graph::kCallEvent ? call.event : op.event);
          if (at != events.end()) steps.push_back({Step::Kind::kWait, at->second});
        }
      }
      for (const int id : blocking) steps.push_back({Step::Kind::kWait, id});
    }
  }

  bool Advance(std::deque<Step>* steps) {
    bool moved = false;
    while (!steps->empty()) {
      Message& m = messages_[static_cast<std::size_t>(steps->front().message)];
      if (steps->front().kind == Step::Kind::kPost) {
        m.posted = true;
      } else if (!m.done) {
        break;
      }
      steps->pop_front();
      moved = true;
    }
    return moved;
  }

  // A message is ready when posted and everything before its batch on its stream is done.
  bool Ready(int id) const {
    const Message& m = messages_[static_cast<std::size_t>(id)];
    if (!m.posted) return false;
    for (const int before : streams_.at({m.rank, m.stream})) {
      const Message& other = messages_[static_cast<std::size_t>(before)];
      if (other.batch == m.batch) return true;
      if (!other.done) return false;
    }
    return false;
  }

  bool Match() {
    bool moved = false;
    for (auto& [key, sends] : pairs_) {
      const auto& [rank, peer, tag, is_send] = key;
      if (!is_send) continue;
      auto receives = pairs_.find({peer, rank, tag, false});
      if (receives == pairs_.end()) continue;
      std::size_t& next = next_[{rank, peer, tag}];
      while (next < sends.size() && next < receives->second.size() && Ready(sends[next]) &&
             Ready(receives->second[next])) {
        Message& s = messages_[static_cast<std::size_t>(sends[next])];
        Message& r = messages_[static_cast<std::size_t>(receives->second[next])];
        EXPECT_EQ(s.bytes, r.bytes);
        s.started = r.started = true;
        ++next;
        moved = true;
      }
    }
    // A batch ends when all of it has started.
    std::map<int, bool> whole;
    for (const Message& m : messages_) whole.try_emplace(m.batch, true).first->second &= m.started;
    for (Message& m : messages_) {
      if (!m.done && whole[m.batch]) m.done = moved = true;
    }
    return moved;
  }

  const graph::Graph& graph_;
  std::vector<Message> messages_;
  std::map<std::size_t, std::deque<Step>> steps_;
  std::map<std::pair<std::size_t, std::uint8_t>, std::vector<int>> streams_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint8_t, bool>, std::vector<int>> pairs_;
  std::map<std::tuple<std::size_t, std::size_t, std::uint8_t>, std::size_t> next_;
};

Plan RandomPlan(CounterRng* rng) {
  const auto pick = [&](std::initializer_list<int> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(rng->Below(values.size())));
  };
  const auto coin = [&] { return rng->Below(2) == 0; };
  Plan p{.parallel = {.tp = pick({1, 2, 4}),
                      .pp = pick({1, 2, 3, 4}),
                      .vpp = pick({1, 1, 2, 3}),
                      .dp = pick({1, 2, 3})}};
  p.parallel.sequence_parallel = coin();
  p.batch.micro_batch = pick({1, 2});
  p.batch.global_batch = p.batch.micro_batch * p.parallel.dp * pick({1, 2, 3, 4, 6, 8, 12});
  p.batch.seq_len = pick({64, 128});
  p.precision.type = static_cast<Precision>(rng->Below(3));
  p.memory.recompute = static_cast<Recompute>(rng->Below(3));
  p.memory.sharding = static_cast<Sharding>(rng->Below(2));
  p.parallel.schedule =
      p.parallel.vpp > 1 ? Schedule::k1f1bInterleaved : static_cast<Schedule>(rng->Below(2));
  p.parallel.microbatch_group = p.parallel.vpp > 1 ? pick({0, 0, 3, 4, 6}) : 0;
  p.framework.attention = static_cast<AttentionBackend>(rng->Below(3));
  p.framework.overlap_grad_reduce = coin();
  p.framework.overlap_param_gather = coin();
  p.framework.overlap_p2p = coin();
  p.framework.grad_reduce_fp32 = coin();
  p.framework.bucket_elements = pick({1, 40'000'000});
  p.framework.fused_bias_activation = coin();
  p.framework.fused_softmax = coin();
  p.framework.fused_adam = coin();
  p.framework.align_grad_reduce = coin();
  p.framework.align_param_gather = coin();
  p.framework.recompute_flash = coin();
  p.framework.overlap_tp_all_reduce = coin();
  p.framework.copies_units = coin();
  p.framework.scatter_gather_p2p = coin();
  p.framework.batch_p2p_sync = coin();
  p.framework.batch_sync = coin();
  p.framework.log_every_step = coin();
  p.framework.tp_comm_overlap = p.parallel.sequence_parallel && coin();
  p.memory.recompute_method = static_cast<RecomputeMethod>(rng->Below(3));
  p.memory.recompute_layers = pick({1, 1, 2, 3});
  p.framework.overlap_p2p_warmup_flush =
      p.framework.overlap_p2p && p.parallel.schedule == Schedule::k1f1bInterleaved && coin();
  return p;
}

Model RandomModel(CounterRng* rng) {
  Model m = SmallGpt(static_cast<int>(6 + 6 * rng->Below(3)));
  if (rng->Below(2) == 0) {
    m.norm = Norm::kRmsNorm;
    m.activation = Activation::kSwiglu;
    m.position = Position::kRotary;
    m.kv_heads = 4;
    m.attention_bias = m.mlp_bias = false;
  }
  m.tied_embeddings = rng->Below(2) == 0;
  m.dropout = rng->Below(2) == 0 ? 0.1 : 0;
  return m;
}

// No communicator of one rank, no event beyond the program's, no stream but the agreed ones.
void ExpectTidy(const graph::Graph& g) {
  for (std::size_t i = 0; i < g.groups.size(); ++i) {
    EXPECT_GE(g.groups.members(GroupId(i)).size(), 2u);
  }
  for (const graph::Program& program : g.programs) {
    EXPECT_LE(program.events, 64);
    for (const graph::Call& call : program.calls) EXPECT_LT(call.event, program.events);
  }
}

TEST(GeneratorProperty, RandomPlansRunOrAreRefused) {
  CounterRng rng(20240607);
  int made = 0;
  Generator generator;
  for (int i = 0; i < 1500; ++i) {
    const Model m = RandomModel(&rng);
    const Plan p = RandomPlan(&rng);
    graph::Graph g;
    const Status status = generator.AddJob(m, p, "random", &g);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::kInvalidInput);
      EXPECT_NE(status.message().find(": "), std::string::npos) << status.message();
      EXPECT_TRUE(g.bindings.empty());
      continue;
    }
    ++made;
    const std::string what = fmt::format(
        "plan {}: tp {} pp {} vpp {} dp {} m {} schedule {}", i, p.parallel.tp, p.parallel.pp,
        p.parallel.vpp, p.parallel.dp, p.microbatches(), static_cast<int>(p.parallel.schedule));
    const Status verified = graph::Verify(g, graph::VerifyLevel::kFull);
    ASSERT_TRUE(verified.ok()) << what << ": " << verified.message();
    ExpectTidy(g);
    ASSERT_TRUE(ExchangeRun(g).Stuck().empty()) << what;
  }
  EXPECT_GT(made, 400);
}

// Every rank is in one group of each kind that its program uses, and stands where rank order says.
TEST(Generator, GroupsFollowMegatronsRankOrder) {
  Plan p{.parallel = {.tp = 2, .pp = 3, .dp = 4}, .batch = {.global_batch = 4, .seq_len = 64}};
  const graph::Graph g = Make(SmallGpt(6), p);
  ASSERT_EQ(g.bindings.size(), 24u);
  const auto members = [&](std::size_t rank, graph::GroupSlot slot) {
    std::string out;
    const GroupId id = g.bindings[rank].groups[static_cast<std::size_t>(slot)];
    if (!id.valid()) return out;
    for (const RankId r : g.groups.members(id)) out += fmt::format("{} ", r.value);
    return out;
  };
  EXPECT_EQ(members(11, graph::GroupSlot::kTp), "10 11 ");  // stage 1, replica 1
  EXPECT_EQ(members(11, graph::GroupSlot::kDp), "9 11 13 15 ");
  EXPECT_EQ(members(11, graph::GroupSlot::kEmbedding), "");  // neither first nor last stage
  EXPECT_EQ(members(3, graph::GroupSlot::kEmbedding), "3 19 ");
  EXPECT_EQ(members(11, graph::GroupSlot::kModel), "2 3 10 11 18 19 ");
  EXPECT_EQ(g.bindings[11].peers[0].value, 3u);
  EXPECT_EQ(g.bindings[11].peers[1].value, 19u);
  EXPECT_FALSE(g.bindings[3].peers[0].valid());
  p.memory.sharding = Sharding::kZero1;  // the norm of sharded gradients is a sum over all
  const graph::Graph zero = Make(SmallGpt(6), p);
  EXPECT_EQ(
      zero.groups
          .members(zero.bindings[5].groups[static_cast<std::size_t>(graph::GroupSlot::kModel)])
          .size(),
      24u);
}

TEST(Generator, TwoJobsShareAGraph) {
  graph::Graph g;
  Generator generator;
  const Plan a{.parallel = {.tp = 2, .pp = 2}, .batch = {.global_batch = 4, .seq_len = 64}};
  const Plan b{.parallel = {.dp = 3}, .batch = {.global_batch = 3, .seq_len = 64}};
  ASSERT_TRUE(generator.AddJob(SmallGpt(4), a, "a", &g).ok());
  ASSERT_TRUE(generator.AddJob(SmallGpt(2), b, "b", &g).ok());
  EXPECT_EQ(g.bindings.size(), 7u);
  EXPECT_EQ(g.jobs[1].name, "b");
  EXPECT_EQ(g.jobs[0].tokens_per_step, 4 * 64);
  EXPECT_EQ(g.bindings[4].logical_rank, 0u);
  EXPECT_EQ(g.bindings[4].job.value, 1u);
  const GroupId dp = g.bindings[5].groups[static_cast<std::size_t>(graph::GroupSlot::kDp)];
  EXPECT_EQ(g.groups.members(dp)[0].value, 4u);
  EXPECT_TRUE(graph::Verify(g, graph::VerifyLevel::kFull).ok());
}

// A warm generator gives the same graph as a cold one, also when its names were first met
// elsewhere.
TEST(Generator, CacheDoesNotShow) {
  const Plan p{.parallel = {.tp = 2, .pp = 2, .sequence_parallel = true},
               .batch = {.global_batch = 4, .seq_len = 64}};
  Generator warm;
  graph::Graph other, again;
  ASSERT_TRUE(warm.AddJob(*FindModel("llama3-8b"), p, "x", &other).ok());
  ASSERT_TRUE(warm.AddJob(SmallGpt(4), p, "x", &again).ok());
  const graph::Graph cold = Make(SmallGpt(4), p);
  ASSERT_EQ(cold.blocks.size(), again.blocks.size());
  for (std::size_t i = 0; i < cold.blocks.size(); ++i) {
    EXPECT_EQ(cold.blocks[i].content_hash, again.blocks[i].content_hash);
    EXPECT_EQ(cold.name(cold.blocks[i].name), again.name(again.blocks[i].name));
    EXPECT_EQ(Operations(cold, cold.blocks[i]), Operations(again, again.blocks[i]));
  }
  EXPECT_EQ(cold.programs[1].calls, again.programs[1].calls);
}

TEST(Generator, PassesOfAllMicrobatches) {
  const Plan p{.parallel = {.pp = 2, .vpp = 2, .dp = 2, .schedule = Schedule::k1f1bInterleaved},
               .batch = {.global_batch = 24, .micro_batch = 2, .seq_len = 64}};
  const graph::Graph g = Make(SmallGpt(8), p);
  std::set<std::tuple<std::string, int, int>> seen;
  int layers = 0;
  for (const graph::Call& call : g.programs[1].calls) {
    const std::string& name = g.name(g.blocks[call.block.index()].name);
    if (!name.starts_with("layer.")) continue;
    EXPECT_TRUE(seen.emplace(name, call.microbatch, call.chunk).second);
    layers += call.repeat;
  }
  EXPECT_EQ(seen.size(), 2u * 6 * 2);  // both ways, 6 micro-batches, 2 chunks
  EXPECT_EQ(layers, 2 * 6 * 2 * 2);    // of 2 layers
}

// The size of the plan that searches start from. An exact counter: a change here changes how long
// every evaluation takes, so it belongs in the changelog.
TEST(Generator, BasePlanStaysSmall) {
  const Plan p{.parallel = {.tp = 8, .pp = 8, .dp = 16, .sequence_parallel = true},
               .batch = {.global_batch = 1536},
               .memory = {.sharding = Sharding::kZero1}};
  const graph::Graph g = Make(*FindModel("gpt3-175b"), p);
  std::size_t calls = 0;
  for (const graph::Program& program : g.programs) calls += program.calls.size();
  EXPECT_EQ(g.bindings.size(), 1024u);
  EXPECT_EQ(g.programs.size(), 8u);
  EXPECT_EQ(calls, 3490u);
  EXPECT_EQ(g.blocks.size(), 44u);
}

}  // namespace
}  // namespace orrery::workload
