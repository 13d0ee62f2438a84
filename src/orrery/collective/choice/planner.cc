// NCCL's choice: algorithm and protocol by its cost table, then channels, threads, chunk, credits.
#include <algorithm>
#include <bit>
#include <limits>

#include "orrery/collective/choice/expected.h"
#include "orrery/collective/choice/nccl_tables.h"
#include "orrery/collective/choice/tuner.h"
#include "orrery/collective/collective.h"
#include "orrery/collective/formula/formula.h"
#include "orrery/collective/formula/moye.h"
#include "orrery/collective/white_box.h"

namespace orrery::collective {
namespace {

using cluster::Arch;
using graph::Collective;

constexpr std::int64_t kCellBytes = 32 << 10;  // NCCL: no channel gets less traffic than this
constexpr int kSteps = 8;                      // NCCL_STEPS: slots of a connection's buffer

int MaxThreads(const Question& q, Algorithm algorithm, int protocol) {
  const int own = q.spec->device.collective_threads;
  const int most = own > 0 ? own : std::numeric_limits<int>::max();
  if (protocol == 1) return std::min(most, q.environment->ll128_threads);
  const bool narrow = algorithm == Algorithm::kRing && protocol == 2 &&
                      q.found.bandwidth_GBps * q.found.graph <= 12;
  return std::min({most, q.environment->threads, narrow ? 256 : most});
}

// Where a file's channels of the algorithm come into a host.
int NicsOf(const Graphs& graphs, Algorithm algorithm) {
  const Graph& graph =
      algorithm == Algorithm::kTree && graphs.tree.given ? graphs.tree : graphs.ring;
  std::vector<int> nets;
  for (const GraphChannel& channel : graph.channels) {
    nets.push_back(channel.nets.empty() ? channel.gpus[0] : channel.nets[0]);
  }
  std::sort(nets.begin(), nets.end());
  nets.erase(std::unique(nets.begin(), nets.end()), nets.end());
  return std::max<int>(1, static_cast<int>(nets.size()));
}

// NCCL's own loops (topoGetAlgoInfo), and no cells: a CollNet's channels share the data as they
// are.
void CollNetChannels(const Question& q, std::int64_t most, Plan* plan) {
  std::int64_t channels = q.found.channels, threads = 640, threshold = 512;
  if (plan->algorithm == Algorithm::kNvls) {
    channels =
        std::min<std::int64_t>(channels, nccl::NvlsChannels(*q.spec, *q.shape, *q.environment));
  } else if (plan->algorithm == Algorithm::kCollNetDirect) {
    bool few = true;
    for (std::int64_t plateau = 16; plateau >= 1 && few; plateau /= 2) {
      for (;;) {
        few = q.bytes < channels * threads * plan->heads * threshold;
        if (!few || channels <= plateau) break;
        if (channels == plateau + plateau / 2) threshold /= 2;
        --channels;
      }
    }
  } else {
    while (q.bytes < channels * threads * threshold && channels >= 2) --channels;
    while (q.bytes < channels * threads * threshold && threads % 128 == 0) threads /= 2;
  }
  if (most > 0) channels = std::min(channels, most);
  plan->channels = static_cast<int>(channels);
  plan->threads = static_cast<int>(std::max<std::int64_t>(threads, 96));
}

// `most`: a tuner's channels; -1: none.
void ShrinkChannels(const Question& q, std::int64_t most, Plan* plan) {
  if (model::IsCollNet(*plan)) return CollNetChannels(q, most, plan);
  const int p = static_cast<int>(plan->protocol);
  std::int64_t threshold = p == 2 ? 64 : 8;
  if (p == 0 && plan->algorithm == Algorithm::kRing) threshold *= q.ranks();
  if (plan->algorithm == Algorithm::kTree || plan->algorithm == Algorithm::kRing) {
    const auto a = static_cast<std::size_t>(plan->algorithm);
    const std::int64_t said = q.environment->thread_thresholds[a][static_cast<std::size_t>(p)];
    if (said >= 0) threshold = said;
  }
  std::int64_t channels = q.found.channels;
  std::int64_t threads = MaxThreads(q, plan->algorithm, p);
  // while bytes < channels * threads * threshold: --channels, down to 1.
  if (threshold > 0) {
    channels = std::clamp<std::int64_t>(q.bytes / (threads * threshold), 1, channels);
  }
  if (model::IsNvls(*plan)) {
    channels = nccl::NvlsChannels(*q.spec, *q.shape, *q.environment);
    threads = 640;
  }
  while (!model::IsNvls(*plan) && q.bytes < channels * threads * threshold && threads % 128 == 0) {
    threads /= 2;
  }
  if (most > 0)
    channels = std::min<std::int64_t>(most, model::IsNvls(*plan) ? channels : q.found.channels);
  // Each channel gets at least one cell of traffic.
  std::int64_t traffic = q.bytes * (q.collective == Collective::kAllReduce ? 2 : 1);
  if (p == 0) traffic *= 4;
  channels = std::min(channels, std::max<std::int64_t>(1, (traffic + kCellBytes - 1) / kCellBytes));
  plan->channels = static_cast<int>(channels);
  plan->threads = static_cast<int>(std::max<std::int64_t>(threads, 96));
}

std::int64_t StepBytes(const Environment& environment, Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL:
      return environment.ll_buffer_bytes / kSteps / 2;
    case Protocol::kLL128:
      return environment.ll128_buffer_bytes / kSteps / 128 * 120;
    case Protocol::kSimple:
      return environment.buffer_bytes / kSteps;
  }
  return environment.buffer_bytes / kSteps;
}

std::int64_t TreeLL128Chunk(const GroupShape& shape, std::int64_t share, std::int64_t chunk) {
  const double depth = 1 + Log2(shape.domains) + 0.1 * shape.ranks_per_domain;
  const auto rounds = [&] { return static_cast<double>(share) / static_cast<double>(chunk); };
  while (rounds() < 64 * depth / shape.ranks_per_domain && chunk > (128 << 10)) chunk /= 2;
  while (rounds() < 16 * depth / shape.ranks_per_domain && chunk > (32 << 10)) chunk /= 2;
  return chunk;
}

// NCCL up to 2.19: fewer bytes over deeper trees go in smaller chunks.
std::int64_t TreeSimpleChunk(const Plan& plan, std::int64_t chunk) {
  const std::int64_t depth = plan.shape.ranks_per_domain - 1 + Log2(plan.shape.domains);
  const auto halve = [&](std::int64_t rounds, std::int64_t least) {
    while (plan.bytes / (plan.channels * chunk) < rounds && chunk > least) chunk /= 2;
  };
  halve(8 * depth, 128 << 10);
  halve(4 * depth, 64 << 10);
  halve(depth, 32 << 10);
  return std::max<std::int64_t>(16, chunk / 16 * 16);
}

// What nobody set: NCCL's defaults, on EFA those of AWS's plugin (aws-ofi-nccl, platform-aws.cpp),
// of which releases take notice one after the other.
void SetDefaults(const cluster::Spec& spec, Environment* e) {
  const bool efa = spec.fabric == cluster::Fabric::kEfa && spec.device.arch != Arch::kVolta;
  const bool nvls = efa && e->release->plugin_sets_nvls_chunks;
  const bool sends = efa && e->release->plugin_sets_send_chunks;
  if (e->nvls_chunk_bytes == 0) e->nvls_chunk_bytes = nvls ? 512 << 10 : 128 << 10;
  if (nvls && e->nvls_tree_chunk_bytes == 0) e->nvls_tree_chunk_bytes = 512 << 10;
  if (e->buffer_bytes == 0) e->buffer_bytes = sends ? 8 << 20 : 4 << 20;
  if (e->p2p_net_chunk_bytes == 0) e->p2p_net_chunk_bytes = sends ? 512 << 10 : 128 << 10;
}

// The bytes of a chunk fall with what all heads and channels move at once.
std::int64_t NvlsChunk(const Environment& environment, const Plan& plan) {
  const std::int64_t at_once = std::int64_t{plan.channels} * plan.heads;
  std::int64_t chunk = environment.nvls_chunk_bytes;
  const auto below = [&](std::int64_t times, std::int64_t least) {
    if (plan.bytes < times * at_once * chunk && chunk > least) chunk = least;
  };
  if (plan.algorithm == Algorithm::kNvls) {
    below(64, 64 << 10);
    below(8, 32 << 10);
    below(2, 16 << 10);
  } else {
    if (plan.release->nvls_tree_whole_steps) chunk = environment.buffer_bytes / kSteps;
    const bool many = plan.shape.domains >= 4 && plan.release->nvls_tree_small_chunks;
    const std::int64_t most = environment.nvls_tree_chunk_bytes > 0
                                  ? environment.nvls_tree_chunk_bytes
                              : many ? 64 << 10
                                     : chunk;
    chunk = std::min(chunk, most);
    below(32, 256 << 10);
    below(16, 128 << 10);
    below(4, 64 << 10);
    below(1, 32 << 10);
  }
  return std::max<std::int64_t>(16, chunk / 16 * 16);
}

// Later heads of one domain share what is less than a loop in multiples of 16 KiB: where
// little moves the last of them have nothing (all_reduce.h, lastChunkSize).
int HeadsWithData(const Plan& plan) {
  const bool one = plan.algorithm == Algorithm::kNvls && plan.shape.domains == 1;
  if (!one || !plan.release->nvls_whole_cells || plan.collective != Collective::kAllReduce)
    return plan.heads;
  const std::int64_t share = (plan.bytes + plan.channels - 1) / plan.channels;
  if (share == 0 || share >= plan.heads * plan.chunk_bytes) return plan.heads;
  constexpr std::int64_t kPart = 16 << 10;
  const std::int64_t each = (share + plan.heads * kPart - 1) / (plan.heads * kPart) * kPart;
  return static_cast<int>((share + each - 1) / each);
}

// NCCL's calcCollChunking: smaller the fewer there are.
std::int64_t CollNetChunk(const Environment& environment, const Plan& plan, double expected_GBps,
                          std::int64_t step) {
  if (plan.algorithm == Algorithm::kNvls) {
    Environment e = environment;
    if (expected_GBps < 150) e.nvls_chunk_bytes = std::min<std::int64_t>(e.nvls_chunk_bytes, 32768);
    return NvlsChunk(e, plan);
  }
  const bool chain = plan.algorithm == Algorithm::kCollNetChain;
  std::int64_t chunk = chain ? std::min<std::int64_t>(256 << 10, step) : step;
  const std::int64_t depth = chain ? plan.shape.ranks / plan.shape.domains
                             : plan.shape.ranks_per_domain > 1 ? 2
                                                               : 1;
  const auto halve = [&](std::int64_t rounds, std::int64_t least) {
    while (plan.bytes / (plan.channels * std::max(1, plan.heads) * chunk) < rounds &&
           chunk > least) {
      chunk /= 2;
    }
  };
  halve(64 * depth, 128 << 10);
  halve(8 * depth, 64 << 10);
  halve(chain ? depth : 8 * depth, 32 << 10);
  return std::max<std::int64_t>(16, chunk / 16 * 16);
}

// `expected_GBps`: of NVLS over several domains, what NCCL expects of it.
void SetChunks(const Environment& environment, double expected_GBps, Plan* plan) {
  const std::int64_t step =
      std::max<std::int64_t>(16, StepBytes(environment, plan->protocol) / 16 * 16);
  const bool rotating = plan->algorithm == Algorithm::kRing && model::IsRotating(plan->collective);
  plan->chunk_bytes = plan->slice_bytes = step;
  plan->credits = kSteps;
  if (model::IsNvls(*plan)) {
    plan->chunk_bytes = plan->slice_bytes = NvlsChunk(environment, *plan);
  } else if (model::IsCollNet(*plan)) {
    plan->chunk_bytes = plan->slice_bytes = CollNetChunk(environment, *plan, expected_GBps, step);
  } else if (plan->algorithm == Algorithm::kPat) {
    const std::int64_t times = plan->collective == Collective::kAllGather ? 32 : 16;
    while (plan->chunk_bytes * plan->channels * times > plan->bytes &&
           plan->chunk_bytes > (64 << 10)) {
      plan->chunk_bytes /= 2;
    }
    plan->slice_bytes = plan->chunk_bytes;
  } else if (plan->algorithm == Algorithm::kTree && plan->protocol == Protocol::kSimple &&
             plan->release->tree_chunks_by_depth) {
    plan->chunk_bytes = plan->slice_bytes = TreeSimpleChunk(*plan, step);
  } else if (model::PassesLines(*plan)) {
    std::int64_t chunk = step;
    if (plan->algorithm == Algorithm::kTree && plan->protocol == Protocol::kLL128) {
      chunk = TreeLL128Chunk(plan->shape, plan->bytes / plan->channels, step) / 16 * 16;
    }
    plan->chunk_bytes = plan->slice_bytes = std::min(chunk, model::PassBytes(*plan));
    plan->credits = static_cast<int>(kSteps * chunk / plan->chunk_bytes);
    plan->nccl_chunk_bytes = chunk;
  } else if (rotating && plan->protocol == Protocol::kSimple) {
    plan->chunk_bytes = 4 * step;  // chunkSteps 4, sliceSteps 2
    plan->slice_bytes = plan->chunk_bytes / environment.ring_slices;
    plan->credits = kSteps / 4 * environment.ring_slices;
  } else if (rotating) {
    // A receiver reads the lines of a step as they come: half a step at a time here.
    plan->slice_bytes = std::max<std::int64_t>(16, step / 2 / 16 * 16);
    plan->credits = 2 * kSteps;
  }
  if (plan->nccl_chunk_bytes == 0) plan->nccl_chunk_bytes = plan->chunk_bytes;
}

int PowerOfTwo(int value) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(1, value))));
}

// Through NICs, by release (paths.cc, ncclTopoGetNchannels): two; later one where more than
// 4 peers would share a channel, but as many as a GPU beside its CPU has NICs to drive (Grace:
// two); at last as many as the NIC's rate needs.
int ChannelsThroughNics(const Question& q) {
  const Environment& e = *q.environment;
  if (e.channels_per_net_peer > 0) return e.channels_per_net_peer;
  if (e.release->peers_channels_by_rate) {
    const double nic = nccl::NicGBps(*q.spec, *q.shape);
    return std::max(1, static_cast<int>((nic + e.p2p_channel_GBps - 0.001) / e.p2p_channel_GBps));
  }
  const bool many = e.release->peers_share_channels && 2 * q.ranks() > 4 * q.found.channels;
  return many && !q.spec->cpu_is_grace ? 1 : 2;
}

// Fewest and most channels of a message, of the communicator's `pool`: those to the peer with the
// fewest, one behind a NIC, if the communicator has such.
std::pair<int, int> ChannelsAPeer(const Question& q, int pool) {
  const Environment& e = *q.environment;
  const bool spans = q.domains() > 1;
  const int joined = q.shape->pair_nvlinks;
  const int switched = q.spec->device.arch == Arch::kAmpere ? 12 : 18;
  const int links = q.over_pcie(Ways::kPairs) ? 1 : joined > 0 ? joined : switched;
  int most = std::min(PowerOfTwo(spans ? ChannelsThroughNics(q) : 2 * links), pool);
  if (spans && e.release->peers_channels_by_rate) {
    while (most > 1 && most * ((q.ranks() + 7) / 8) > pool) most /= 2;
  }
  int least = most;
  const bool old = !e.release->peers_share_channels;  // but in one domain
  while (!(old && spans) && least > 1 && least * q.ranks() > pool) least /= 2;
  while (old && !spans && most > 1 && most * q.ranks() > 4 * pool) most /= 2;
  return {std::min(least, most), most};
}

// `q` asks for the communicator: its size and span decide the channels and the chunk. `pair` is
// the way this message takes: what of it goes through NICs uses smaller chunks and no LL buffers.
Plan PointToPointPlan(const Question& q, const GroupShape& pair) {
  const Environment& e = *q.environment;
  const bool spans = q.domains() > 1;
  const bool crosses = pair.domains > 1;
  Plan plan;
  plan.collective = Collective::kSend;
  plan.algorithm = Algorithm::kPointToPoint;
  plan.bytes = q.bytes;
  plan.shape = pair;
  plan.queue_pairs = e.queue_pairs;
  plan.sockets = e.socket_threads * e.sockets_per_thread;
  plan.socket_threads = e.socket_threads;
  plan.steps = e.steps;
  plan.p2p_group = e.p2p_group;
  plan.pxn = e.pxn;
  const int pool = std::clamp(PowerOfTwo(q.found.channels), e.min_p2p_channels, e.max_p2p_channels);
  const std::pair<int, int> range = ChannelsAPeer(q, pool);
  const int least = range.first, most = range.second;
  const std::int64_t nominal =
      std::clamp<std::int64_t>(spans                       ? e.p2p_net_chunk_bytes
                               : q.over_pcie(Ways::kPairs) ? e.p2p_pci_chunk_bytes
                                                           : e.p2p_nvl_chunk_bytes,
                               4096, std::max<std::int64_t>(4096, e.buffer_bytes / kSteps));
  const auto channels = [&](std::int64_t step) {
    const std::int64_t min_part = step / (spans ? 2 : 8), max_part = step * (spans ? 1 : 32);
    int count =
        static_cast<int>(std::clamp<std::int64_t>((q.bytes + min_part - 1) / min_part, 1, least));
    while (count < most && (q.bytes + count - 1) / count > max_part) count *= 2;
    return std::min(count, most);
  };
  // LL's limit is of all channels that a peer may have, and its parts are of its own step; or it is
  // of those that Simple would take.
  const bool may = !crosses || e.p2p_net_ll;
  const bool of_all = e.release->peers_ll_of_all;
  bool ll = of_all && may && q.bytes <= most * e.p2p_ll_threshold_bytes;
  plan.channels = channels(ll ? 2 * StepBytes(e, Protocol::kLL) : nominal);
  if (!of_all) ll = may && q.bytes <= plan.channels * e.p2p_ll_threshold_bytes;
  plan.lanes = pool;
  plan.protocol = ll ? Protocol::kLL : Protocol::kSimple;
  std::int64_t chunk = nominal;
  if (ll) chunk = std::min(chunk, StepBytes(e, Protocol::kLL));
  const std::int64_t part = (q.bytes + plan.channels - 1) / plan.channels;
  if (e.p2p_chunk_bytes > 0) {
    chunk = e.p2p_chunk_bytes;
  } else if (crosses && !ll) {
    chunk /= part < chunk ? 4 : part < 8 * chunk ? 2 : 1;
  }
  plan.chunk_bytes = plan.slice_bytes = std::max<std::int64_t>(512, chunk / 16 * 16);
  plan.credits = kSteps;
  return plan;
}

struct Choice {
  double us = kNotAvailable;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
};

// All that NCCL has to choose from, in the order in which it looks.
constexpr std::pair<Algorithm, Protocol> kChoices[] = {
    {Algorithm::kTree, Protocol::kLL},
    {Algorithm::kTree, Protocol::kLL128},
    {Algorithm::kTree, Protocol::kSimple},
    {Algorithm::kRing, Protocol::kLL},
    {Algorithm::kRing, Protocol::kLL128},
    {Algorithm::kRing, Protocol::kSimple},
    {Algorithm::kCollNetDirect, Protocol::kSimple},
    {Algorithm::kCollNetChain, Protocol::kSimple},
    {Algorithm::kNvls, Protocol::kSimple},
    {Algorithm::kNvlsTree, Protocol::kSimple},
    {Algorithm::kPat, Protocol::kSimple},
};

Choice Least(const Question& q, bool direct) {
  Choice best;
  for (const auto& [a, p] : kChoices) {
    const double us = ExpectedUs(q, a, p, direct);
    if (us < best.us) best = {us, a, p};
  }
  return best;
}

// Where nothing that runs without CollNet was allowed, Ring and Tree are (tuning.cc, enqueue.cc).
Choice LeastOfFallback(const Question& q, bool direct) {
  Environment allows = *q.environment;
  const auto c = static_cast<std::size_t>(q.collective);
  allows.algorithm_allowed[c].fill(false);
  allows.algorithm_allowed[c][static_cast<std::size_t>(Algorithm::kRing)] = true;
  allows.algorithm_allowed[c][static_cast<std::size_t>(Algorithm::kTree)] = true;
  Question again = q;
  again.environment = &allows;
  return Least(again, direct);
}

}  // namespace

std::string_view Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kTree:
      return "Tree";
    case Algorithm::kRing:
      return "Ring";
    case Algorithm::kPointToPoint:
      return "P2P";
    case Algorithm::kNvls:
      return "NVLS";
    case Algorithm::kNvlsTree:
      return "NVLSTree";
    case Algorithm::kPat:
      return "PAT";
    case Algorithm::kCollNetDirect:
      return "CollNetDirect";
    case Algorithm::kCollNetChain:
      return "CollNetChain";
  }
  return "?";
}

std::string_view Name(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL:
      return "LL";
    case Protocol::kLL128:
      return "LL128";
    case Protocol::kSimple:
      return "Simple";
  }
  return "?";
}

Planner::Planner(const cluster::Cluster& cluster, const Environment& environment,
                 const Pricing& pricing)
    : cluster_(&cluster), environment_(environment), pricing_(pricing) {
  environment_.release = nullptr;
  environment_.version = ReleaseOn(cluster.spec().device.arch, environment_);
  environment_.release = &nccl::ReleaseOf(environment_);
  SetDefaults(cluster.spec(), &environment_);
}

Plan Planner::Shape(graph::Collective collective, Algorithm algorithm, Protocol protocol,
                    std::int64_t bytes, const GroupShape& shape, std::int64_t channels) const {
  Question q{collective, bytes, &shape, &cluster_->spec(), &environment_, {}};
  q.found = nccl::SearchChannels(cluster_->spec(), shape, environment_);
  Plan plan;
  plan.collective = collective;
  plan.algorithm = algorithm;
  plan.protocol = protocol;
  plan.bytes = bytes;
  plan.shape = shape;
  plan.release = environment_.release;
  plan.queue_pairs = environment_.queue_pairs;
  const bool infiniband = cluster_->spec().fabric == cluster::Fabric::kInfiniBand;
  if (environment_.adaptive_routing < 0 ? infiniband : environment_.adaptive_routing > 0) {
    plan.adaptive_above = environment_.adaptive_above;
  }
  plan.sockets = environment_.socket_threads * environment_.sockets_per_thread;
  plan.socket_threads = environment_.socket_threads;
  plan.steps = environment_.steps;
  if (nccl::Takes(environment_.graphs, shape)) {
    plan.graphs = &environment_.graphs;
    plan.shape.nics = std::min(shape.nics, NicsOf(environment_.graphs, algorithm));
  }
  if (model::IsNvls(plan)) plan.heads = std::min(shape.ranks_per_domain, kMostHeads);
  if (model::IsCollNet(plan) && algorithm != Algorithm::kCollNetChain) {
    plan.heads = CollNetHeads(shape);
  }
  ShrinkChannels(q, channels, &plan);
  SetChunks(environment_, model::IsCollNet(plan) ? CollNetAllReduceGBps(q) : 0, &plan);
  plan.heads = HeadsWithData(plan);
  // Moye's equations know no phases.
  if (pricing_.model == PriceModel::kOrrery) plan.phases = PhasesOf(plan, cluster_->spec());
  return plan;
}

Result<Plan> Planner::PricedByMoye(Plan plan) const {
  if (plan.shape.ranks < 2) return plan;
  if (Status has = MoyeHas(plan); !has.ok()) {
    if (!pricing_.otherwise_orrery) return has;
    plan.phases = PhasesOf(plan, cluster_->spec());
    plan.note = "Moye has no equation or no parameters for it: priced by Orrery's formula";
    return plan;
  }
  plan.priced_by = PriceModel::kMoye;
  if (MoyeParametersOf(plan).beyond) {
    plan.note = "chunks beyond Moye's Table 5 (18 to 288 kB): its first or last line drawn on";
  }
  return plan;
}

Plan Planner::CopyPlan(std::int64_t bytes, const GroupShape& pair) const {
  // Lowered, pieces let others at the port in between. They are equal, to 16 bytes.
  constexpr std::int64_t kMostPieceBytes = 4 << 20;
  const std::int64_t pieces =
      std::max<std::int64_t>(1, (bytes + kMostPieceBytes - 1) / kMostPieceBytes);
  Plan plan;
  plan.collective = Collective::kSend;
  plan.algorithm = Algorithm::kPointToPoint;
  plan.copy_engine = true;
  plan.release = environment_.release;
  plan.bytes = bytes;
  plan.shape = pair;
  plan.channels = plan.lanes = 1;
  plan.chunk_bytes = plan.slice_bytes =
      std::max<std::int64_t>(16, ((bytes + pieces - 1) / pieces + 15) / 16 * 16);
  plan.credits = kSteps;
  return plan;
}

Result<Plan> Planner::MakePlan(graph::Collective collective, std::int64_t bytes,
                               const GroupShape& shape, const GroupShape& communicator) const {
  Result<Plan> plan = Choose(collective, bytes, shape, communicator);
  if (pricing_.model == PriceModel::kOrrery || !plan.ok()) return plan;
  return PricedByMoye(*std::move(plan));
}

Result<Plan> Planner::Choose(graph::Collective collective, std::int64_t bytes,
                             const GroupShape& shape, const GroupShape& communicator) const {
  if (bytes < 0)
    return InvalidInput("{} of {} bytes: a size cannot be negative", graph::Name(collective),
                        bytes);
  if (shape.ranks < 1 || shape.domains < 1 || shape.domains > shape.ranks) {
    return InvalidInput("{}: a group of {} ranks over {} NVLink domains does not exist",
                        graph::Name(collective), shape.ranks, shape.domains);
  }
  Question q{collective, bytes, &communicator, &cluster_->spec(), &environment_, {}};
  q.found = nccl::SearchChannels(cluster_->spec(), communicator, environment_);
  if (graph::IsPointToPoint(collective)) return PointToPointPlan(q, shape);
  if (model::IsExchange(collective)) {  // a send and a receive for every pair
    q.bytes = bytes / shape.ranks;
    Plan plan = PointToPointPlan(q, shape);
    plan.collective = collective;
    plan.bytes = bytes;
    if (pricing_.model == PriceModel::kOrrery) plan.phases = PhasesOf(plan, cluster_->spec());
    return plan;
  }
  if (shape.ranks == 1) {
    Plan plan = Shape(collective, Algorithm::kRing, Protocol::kSimple, bytes, shape);
    plan.channels = 1;
    return plan;
  }
  std::string_view note;
  if (environment_.collnet && shape.domains > 1 && !cluster_->spec().sharp) {
    note = "NCCL_COLLNET_ENABLE: no switch of this cluster reduces (cluster.sharp): no CollNet";
  }
  if (environment_.graphs.given() && !nccl::Takes(environment_.graphs, shape)) {
    note =
        "NCCL_GRAPH_FILE: this group does not hold the file's GPUs in each domain, where NCCL "
        "would stop: searched for";
  }
  for (const TunerRow& row : environment_.tuner) {
    if (!Fits(row, collective, bytes, shape.domains, shape.ranks)) continue;
    if (row.algorithm &&
        ExpectedUs(q, *row.algorithm, row.protocol, cluster_->direct()) < kNotAvailable) {
      Plan plan = Shape(collective, *row.algorithm, row.protocol, bytes, shape, row.channels);
      plan.note = note;
      return plan;
    }
    note = "a row of NCCL_TUNER_CONFIG_FILE names what is not available here: passed over";
  }
  Choice best = Least(q, cluster_->direct());
  if (best.us >= kNotAvailable && q.release().falls_back) {
    best = LeastOfFallback(q, cluster_->direct());
    note =
        "NCCL_ALGO leaves no algorithm for it: NCCL before 2.24 then takes Ring (Tree, too, for "
        "an all-reduce)";
  }
  if (best.us >= kNotAvailable) {
    const auto& allowed = environment_.algorithm_allowed[static_cast<std::size_t>(collective)];
    const bool wants_collnet = allowed[static_cast<std::size_t>(Algorithm::kCollNetDirect)] ||
                               allowed[static_cast<std::size_t>(Algorithm::kCollNetChain)];
    return InvalidInput(
        "NCCL_ALGO and NCCL_PROTO leave no algorithm for {} over {} ranks (NCCL before 2.24 would "
        "take Ring){}; allow Ring",
        graph::Name(collective), shape.ranks,
        wants_collnet && !HasCollNet(q)
            ? "; CollNet needs NCCL_COLLNET_ENABLE=1, cluster.sharp and "
              "several domains of equally many GPUs"
            : "");
  }
  Plan plan = Shape(collective, best.algorithm, best.protocol, bytes, shape);
  plan.note = note;
  // NVLSTree over domains of more GPUs than heads: where its heads stand beside NICs is not known
  // here (and two racks of 64 GB200 that were measured did without it): the best of the others, and
  // said so.
  const bool unknown = shape.domains > 1 && shape.ranks_per_domain > kMostHeads;
  if (unknown && !cluster_->direct() && NvlsTimeUs(q, true) < best.us) {
    plan.instead_of = Name(Algorithm::kNvlsTree);
  }
  return plan;
}

}  // namespace orrery::collective
