#include "orrery/engine/prices.h"

#include <algorithm>
#include <utility>

#include "orrery/base/hash.h"
#include "orrery/base/text.h"
#include "orrery/engine/straight/inline_block.h"

namespace orrery::engine {

LayerWeights::LayerWeights() {
  for (std::size_t l = 0; l < kMax; ++l) {
    const std::uint64_t b = Mix64(0x51ab1e + l) | 1;
    sum[l + 1] = sum[l] + b;
    moment[l + 1] = moment[l] + b * l;
  }
}

const LayerWeights& Weights() {
  static const LayerWeights weights;
  return weights;
}

std::uint64_t View::Key() const {
  Hasher hash;
  hash.Add(speed).Add(alone).Add(own_peers);
  for (std::uint16_t s : shape) hash.Add(s);
  for (std::uint16_t p : peer) hash.Add(p);
  return hash.value();
}

PriceCache::PriceCache(const compute::CostModel& compute, const collective::Planner& planner,
                       std::shared_ptr<const interference::Learned> slowdown)
    : compute_(&compute), planner_(&planner), slowdown_(std::move(slowdown)), shapes_(1) {}

std::uint16_t PriceCache::ShapeId(const collective::GroupShape& shape) {
  for (std::size_t i = 1; i < shapes_.size(); ++i) {
    if (shapes_[i] == shape) return static_cast<std::uint16_t>(i);
  }
  shapes_.push_back(shape);
  ORRERY_CHECK(shapes_.size() < 0xFFFF, "more group shapes than an id can name");
  return static_cast<std::uint16_t>(shapes_.size() - 1);
}

Result<int> PriceCache::PlanId(graph::Collective collective, std::int64_t bytes,
                               std::uint16_t shape, std::uint16_t communicator, bool copies) {
  Hasher hash;
  hash.Add(collective).Add(bytes).Add(shape).Add(communicator);
  if (copies) hash.Add(copies);
  const std::uint64_t key = hash.value();
  if (const auto it = plan_ids_.find(key); it != plan_ids_.end()) return it->second;
  collective::Plan plan;
  if (copies) {
    plan = planner_->CopyPlan(bytes, shapes_[shape]);
  } else {
    ORRERY_ASSIGN_OR_RETURN(
        plan, planner_->MakePlan(collective, bytes, shapes_[shape], shapes_[communicator]));
  }
  return AddPlan(key, plan);
}

int PriceCache::AddPlan(std::uint64_t key, const collective::Plan& plan) {
  costs_.push_back(planner_->ClosedForm(plan));
  plans_.push_back(plan);
  const int id = static_cast<int>(plans_.size()) - 1;
  plan_ids_.emplace(key, id);
  return id;
}

Result<int> PriceCache::UnevenPlanId(const graph::Comm& comm, std::uint16_t shape,
                                     const graph::Shares& shares) {
  const std::uint64_t key =
      Hasher().Add(comm.bytes.value).Add(shape).Add(shares.content_hash).Add(comm.returned).value();
  if (const auto it = plan_ids_.find(key); it != plan_ids_.end()) return it->second;
  auto& kept = shares_[shares.content_hash];
  if (kept == nullptr) kept = std::make_unique<const graph::Shares>(shares);
  ORRERY_ASSIGN_OR_RETURN(
      const collective::Plan plan,
      planner_->UnevenPlan(comm.bytes.value, shapes_[shape], *kept, comm.returned));
  return AddPlan(key, plan);
}

namespace {

// What NCCL runs for it.
graph::Collective AsPlanned(const graph::Comm& comm) {
  switch (comm.collective) {
    case graph::Collective::kRecv:
      return graph::Collective::kSend;
    case graph::Collective::kReduce:  // a broadcast the other way
      return graph::Collective::kBroadcast;
    case graph::Collective::kBarrier:  // an all-reduce of one number
      return graph::Collective::kAllReduce;
    default:
      return comm.collective;
  }
}
constexpr std::int64_t kBarrierBytes = 4;  // one fp32

}  // namespace

std::uint64_t PriceCache::DigestOf(const graph::Comm& comm, std::int64_t bytes,
                                   const graph::Shares* shares) {
  const bool p2p = graph::IsPointToPoint(comm.collective);
  std::uint64_t digest = Hasher()
                             .Add(p2p ? graph::Collective::kSend : comm.collective)
                             .Add(comm.dtype)
                             .Add(bytes)
                             .Add(comm.tag)
                             .value();
  if (shares == nullptr) return digest;
  return Hasher().Add(digest).Add(shares->content_hash).Add(comm.returned).value();
}

Status PriceCache::PriceComm(const graph::Comm& comm, std::int64_t bytes, std::uint16_t shape,
                             std::uint16_t group_shape, const graph::Shares* shares, CommPrice* p) {
  p->comm = comm;
  const cluster::Spec& spec = planner_->cluster().spec();
  if (graph::IsCopy(comm.collective)) {
    p->cost.fixed = spec.pcie_latency;
    p->cost.transfer = TransferTime(bytes, spec.pcie_Bps);
    return {};
  }
  const bool p2p = graph::IsPointToPoint(comm.collective);
  if (shape == 0) return {};  // no partner: the binding leaves the slot empty
  // A message that names no group goes through a communicator of its pair, and so do those of
  // context parallelism, which Transformer Engine does not batch.
  const bool of_pair = group_shape == 0 || (p2p && comm.group == graph::GroupSlot::kCp);
  const std::uint16_t communicator = of_pair ? shape : group_shape;
  const bool copies = p2p && comm.group == graph::GroupSlot::kTp && shapes_[shape].domains == 1;
  if (comm.collective == graph::Collective::kBarrier) bytes = kBarrierBytes;
  if (shares != nullptr) {
    ORRERY_ASSIGN_OR_RETURN(p->plan, UnevenPlanId(comm, shape, *shares));
  } else {
    ORRERY_ASSIGN_OR_RETURN(p->plan, PlanId(AsPlanned(comm), bytes, shape, communicator, copies));
  }
  p->cost = costs_[static_cast<std::size_t>(p->plan)];
  // A port with nothing else on it never bounds a communication below its closed form.
  const collective::PortBytes& m = p->cost.member;
  const collective::GroupShape& group = shapes_[shape];
  const int nics = std::max(1, group.nics);
  const std::int64_t sharers = std::max(1, (group.ranks_per_domain + nics - 1) / nics);
  if (const auto carried = std::max(m.nvlink_out, m.nvlink_in); carried > 0) {
    p->cost.transfer = std::max(p->cost.transfer, TransferTime(carried, spec.nvlink_reached_Bps()));
  }
  if (const auto carried = std::max(m.nic_out, m.nic_in); carried > 0) {
    p->cost.transfer =
        std::max(p->cost.transfer, TransferTime(carried * sharers, spec.nic_reached_Bps()));
  }
  p->nic = p->cost.member.nic_out + p->cost.member.nic_in > 0;
  p->nvlink = p->cost.member.nvlink_out + p->cost.member.nvlink_in > 0;
  if (comm.blocking) return {};
  p->beside = interference::ClassOf(comm.collective, p->nic);
  const double factor = interference::CommunicationFactor(p->beside, spec.device);
  if (factor != 1) p->cost.transfer = RoundToPs(static_cast<double>(p->cost.transfer) * factor);
  return {};
}

Status PriceCache::PriceComms(const graph::Block& block, const View& view,
                              std::span<const graph::Shares> shares, BlockPrice* price) {
  price->comms.resize(block.comms.size());
  for (std::size_t i = 0; i < block.comms.size(); ++i) {
    const graph::Comm& comm = block.comms[i];
    const graph::Shares* own = comm.shares.valid() ? &shares[comm.shares.index()] : nullptr;
    // Both ends of a message agree on its bytes and tag; a collective's members on all of it.
    price->comms[i].digest = DigestOf(comm, comm.bytes.value, own);
    const std::uint16_t group_shape = view.shape[static_cast<std::size_t>(comm.group)];
    const std::uint16_t shape = graph::IsPointToPoint(comm.collective)
                                    ? view.peer[static_cast<std::size_t>(comm.peer.slot())]
                                    : group_shape;
    ORRERY_RETURN_IF_ERROR(
        PriceComm(comm, comm.bytes.value, shape, group_shape, own, &price->comms[i]));
  }
  return {};
}

namespace {

// Turns a block's operations into items, in their order. What the host does before a launch falls
// to the item that it launches.
class ItemWriter {
 public:
  ItemWriter(const graph::Block& block, const compute::CostModel& compute,
             const cluster::Spec& spec, const interference::Learned* slowdown, double speed,
             BlockPrice* price)
      : block_(block),
        compute_(compute),
        device_(spec.device),
        slowdown_(slowdown),
        host_scale_(1.0 / spec.cpu_relative_speed),
        speed_(speed),
        price_(*price),
        in_graph_(block.launch == graph::Launch::kInGraph) {}

  void Write() {
    for (std::size_t i = 0; i < block_.ops.size(); ++i) {
      const graph::Op& op = block_.ops[i];
      switch (op.kind) {
        case graph::OpKind::kAlloc:
        case graph::OpKind::kFree:
          break;
        case graph::OpKind::kHost:
          pending_host_ += Host(block_.host_ps[op.index]);
          break;
        case graph::OpKind::kKernel:
          AddKernel(op, static_cast<std::uint32_t>(i));
          break;
        case graph::OpKind::kComm:
          AddComm(op, static_cast<std::uint32_t>(i));
          break;
        case graph::OpKind::kWait:
          Add(ItemKind::kWait).event = static_cast<std::int16_t>(op.event);
          break;
        case graph::OpKind::kHostSync:
          Add(ItemKind::kHostSync).host = TakeHost();
          break;
        case graph::OpKind::kHostPace:
          Add(ItemKind::kHostPace).host = TakeHost();
          break;
        case graph::OpKind::kTimed:
        case graph::OpKind::kRecord:
          ORRERY_CHECK(false, "a straight program has none of these");
      }
    }
    if (pending_host_ > 0) Add(ItemKind::kWork).host = TakeHost();
  }

 private:
  SimTime Host(SimTime t) const { return RoundToPs(static_cast<double>(t) * host_scale_); }
  SimTime TakeHost() { return std::exchange(pending_host_, 0); }

  // Launching by itself takes `alone`; of a graph the first launch is the only one.
  SimTime Launch(SimTime alone) {
    if (block_.launch == graph::Launch::kEach) return TakeHost() + Host(alone);
    if (std::exchange(in_graph_, true)) return TakeHost();
    return TakeHost() + Host(compute_.host_issue_graph());
  }

  Item& Add(ItemKind kind) {
    Item item;
    item.kind = kind;
    item.key = Mix64(price_.items.size() + 0xfeed) | 1;
    item.optimizer = block_.pass == graph::Pass::kOptimizer;
    return price_.items.emplace_back(item);
  }

  void AddKernel(const graph::Op& op, std::uint32_t number) {
    if (price_.items.empty() || price_.items.back().kind != ItemKind::kWork) {
      Add(ItemKind::kWork).first = static_cast<std::uint32_t>(price_.kernels.size());
    }
    const graph::Kernel& kernel = block_.kernels[op.index];
    const compute::KernelTime time = compute_.Price(kernel);
    KernelPrice k;
    k.op = number;
    k.host = Launch(compute_.host_issue(kernel));
    k.duration = interference::KernelTimes(kernel, static_cast<double>(time.duration) / speed_,
                                           device_, slowdown_);
    price_.kernels.push_back(k);
    price_.items.back().count += 1;
    price_.provenance[static_cast<std::size_t>(time.provenance)] += k.duration[0];
    price_.spread_ps += static_cast<double>(k.duration[0]) * static_cast<double>(time.spread);
  }

  void AddComm(const graph::Op& op, std::uint32_t number) {
    const graph::Comm& comm = block_.comms[op.index];
    price_.comms[op.index].op = number;
    if (!Joins(comm)) {
      Item& item = Add(ItemKind::kComm);
      item.first = op.index;
      item.blocking = comm.blocking;
      item.stream = static_cast<std::uint8_t>(comm.stream);
      item.local = graph::IsCopy(comm.collective);
      if (item.local) item.duration[0] = price_.comms[op.index].cost.total();
      item.event = static_cast<std::int16_t>(comm.event);
      item.host = Launch(compute_.host_issue_comm());
    }
    ++price_.items.back().count;
  }

  // Is it one more of the batch that the last item began?
  bool Joins(const graph::Comm& comm) const {
    return comm.batch != 0 && !price_.items.empty() &&
           price_.items.back().kind == ItemKind::kComm &&
           block_.comms[price_.items.back().first].batch == comm.batch;
  }

  const graph::Block& block_;
  const compute::CostModel& compute_;
  const cluster::DeviceSpec& device_;
  const interference::Learned* slowdown_;
  const double host_scale_, speed_;
  BlockPrice& price_;
  bool in_graph_;
  SimTime pending_host_ = 0;
};

// Sums, lag and digest of a work item.
void CloseWork(const BlockPrice& price, SimTime launch, Item* item) {
  SimTime issued = 0;
  SimTime start = 0;
  SimTime lag = 0;
  for (std::uint32_t k = 0; k < item->count; ++k) {
    const KernelPrice& kernel = price.kernels[item->first + k];
    issued += kernel.host;
    lag = std::max(lag, issued + launch - start);
    start += kernel.duration[0];
    for (std::size_t c = 0; c < kClasses; ++c) item->duration[c] += kernel.duration[c];
    item->digest += Mix64(k + 0xd16e) * static_cast<std::uint64_t>(kernel.duration[0]);
  }
  item->host += issued;
  item->lag = lag;
}

void CloseComm(const BlockPrice& price, Item* item) {
  int sends = 0, receives = 0;
  for (std::uint32_t i = 0; i < item->count; ++i) {
    const CommPrice& comm = price.comms[item->first + i];
    if (comm.plan < 0) continue;
    ++item->parts;
    sends += comm.comm.collective == graph::Collective::kSend ? 1 : 0;
    receives += comm.comm.collective == graph::Collective::kRecv ? 1 : 0;
    item->shares |= !item->blocking && (comm.beside != 0 || comm.nvlink);
  }
  item->one_way = sends <= 1 && receives <= 1;
}

double SecondsOf(const collective::Cost& cost) {
  return ToSeconds(cost.fixed) + ToSeconds(cost.transfer);
}

// Adds the block up; refuses what takes longer than any run.
Status AddUp(const graph::Block& block, const cluster::DeviceSpec& device, BlockPrice* price) {
  for (const KernelPrice& kernel : price->kernels) {
    const double seconds = ToSeconds(kernel.duration[0]);
    price->seconds += seconds;
    if (seconds < kLongest_s) continue;
    return InvalidInput(
        "a kernel ({}) would take {:.2g} s or more on {}, where {:.0f} s (28 h) are the most: see "
        "cluster.device (fp16, fp8, memory_bandwidth) and the sizes of model and training",
        graph::Name(block.pass), seconds, device.name, kLongest_s);
  }
  for (const CommPrice& comm : price->comms) {
    price->seconds += SecondsOf(comm.cost);
    ORRERY_RETURN_IF_ERROR(CheckDuration(comm));
  }
  return {};
}

}  // namespace

Status CheckDuration(const CommPrice& comm) {
  const double seconds = SecondsOf(comm.cost);
  if (seconds < kLongest_s) return {};
  return InvalidInput(
      "{} of {} would take {:.2g} s or more, where {:.0f} s (28 h) are the most: see "
      "cluster.nic_bandwidth, nvlink_bandwidth, pcie_bandwidth and the latencies",
      graph::Name(comm.comm.collective), HumanBytes(comm.comm.bytes.value), seconds, kLongest_s);
}

SimTime PriceCache::KernelTime(const graph::Block& block) {
  const auto [at, added] = kernel_times_.try_emplace(block.content_hash);
  if (added) {
    // What an operation launches: a block cut out of another may hold kernels that none does.
    for (const graph::Op& op : block.ops) {
      if (op.kind != graph::OpKind::kKernel) continue;
      const SimTime duration = compute_->Price(block.kernels[op.index]).duration;
      at->second = std::min(at->second + duration, kMaxDuration);
    }
  }
  return at->second;
}

Result<const BlockPrice*> PriceCache::Find(const graph::Block& block, const View& view,
                                           std::span<const graph::Shares> shares) {
  std::uint64_t key = HashCombine(block.content_hash, view.Key());
  // Blocks name shares by their number, which another graph uses for others.
  for (std::size_t i = 0; !shares.empty() && i < block.comms.size(); ++i) {
    const SharesId id = block.comms[i].shares;
    if (id.valid()) key = HashCombine(key, shares[id.index()].content_hash);
  }
  if (const auto it = blocks_.find(key); it != blocks_.end()) return it->second.get();
  auto price = std::make_unique<BlockPrice>();
  ORRERY_RETURN_IF_ERROR(PriceComms(block, view, shares, price.get()));
  ItemWriter(block, *compute_, planner_->cluster().spec(), slowdown_.get(), view.speed, price.get())
      .Write();
  // A rank counts pieces in 16 bits.
  if (price->items.size() > kMostItems) {
    return InvalidInput("a block ({}) of {} pieces, where {} are the most: cut it in several",
                        graph::Name(block.pass), price->items.size(), kMostItems);
  }
  ORRERY_RETURN_IF_ERROR(AddUp(block, planner_->cluster().spec().device, price.get()));
  for (Item& item : price->items) {
    if (item.kind == ItemKind::kWork) CloseWork(*price, compute_->launch_latency(), &item);
    if (item.kind == ItemKind::kComm) CloseComm(*price, &item);
  }
  InlineBlock(view, compute_->launch_latency(), price.get());
  const BlockPrice* stable = price.get();
  blocks_.emplace(key, std::move(price));
  return stable;
}

}  // namespace orrery::engine
