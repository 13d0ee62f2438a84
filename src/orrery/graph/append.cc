#include "orrery/graph/append.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace orrery::graph {
namespace {

// One above the highest stream that a graph uses.
std::uint32_t StreamsOf(const Graph& graph) {
  std::uint32_t most = static_cast<std::uint32_t>(graph.streams.size());
  const auto see = [&](std::uint32_t stream) {
    if (stream != kNoStream && stream != kHostStream) most = std::max(most, stream + 1);
  };
  for (const Block& block : graph.blocks) {
    for (const Op& op : block.ops) see(op.stream);
    for (const Comm& comm : block.comms) {
      see(comm.stream);
      see(comm.after);
    }
    for (const Buffer& buffer : block.buffers) see(buffer.stream);
  }
  return most;
}

class Appender {
 public:
  Appender(Graph* from, Graph* to) : from_(*from), to_(*to) {}

  Status Run() {
    blocks_ = to_.blocks.size();
    programs_ = to_.programs.size();
    ranks_ = to_.bindings.size();
    groups_ = to_.groups.size();
    shares_ = to_.shares.size();
    routings_ = to_.routings.size();
    constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
    if (ranks_ + from_.bindings.size() > kMost || groups_ + from_.groups.size() > kMost ||
        blocks_ + from_.blocks.size() > kMost) {
      return InvalidInput("the jobs of one run have more than 2^31 ranks, groups or blocks");
    }
    MoveStreams();
    for (Block& block : from_.blocks) AddBlock(std::move(block));
    for (Program& program : from_.programs) AddProgram(std::move(program));
    AddGroups();
    for (const Binding& binding : from_.bindings) AddBinding(binding);
    to_.more_groups.reserve(to_.more_groups.size() + from_.more_groups.size());
    const auto more = static_cast<std::uint32_t>(to_.more_groups.size());
    for (const GroupId id : from_.more_groups) to_.more_groups.push_back(Moved(id));
    for (std::size_t r = ranks_; r < to_.bindings.size(); ++r) to_.bindings[r].more_groups += more;
    for (Shares& shares : from_.shares) to_.shares.push_back(std::move(shares));
    for (Routing routing : from_.routings) {
      routing.layer = Name(routing.layer);
      to_.routings.push_back(routing);
    }
    for (JobInfo& job : from_.jobs) to_.jobs.push_back(std::move(job));
    return {};
  }

 private:
  // All stay where they are unless one of the two graphs has an order of its own.
  void MoveStreams() {
    const auto ordered = [](const Graph& graph) {
      return std::ranges::any_of(graph.streams,
                                 [](const Stream& s) { return s.order != StreamOrder::kInOrder; });
    };
    streams_ = ordered(from_) || ordered(to_) ? StreamsOf(to_) : 0;
    const std::size_t end = streams_ + from_.streams.size();
    if (streams_ == 0 && from_.streams.empty()) return;
    if (to_.streams.size() < end) to_.streams.resize(end, Stream{to_.Intern(""), {}});
    for (std::size_t s = 0; s < from_.streams.size(); ++s) {
      Stream& stream = to_.streams[streams_ + s];
      if (streams_ == 0 && !to_.name(stream.name).empty()) continue;  // both have named it
      stream = {Name(from_.streams[s].name), from_.streams[s].order};
    }
  }
  NameId Name(NameId id) {
    if (!id.valid()) return id;
    if (names_.size() < from_.names().size()) names_.resize(from_.names().size());
    NameId& known = names_[id.index()];
    if (!known.valid()) known = to_.Intern(from_.name(id));
    return known;
  }
  std::uint32_t Moved(std::uint32_t stream) const {
    return stream == kNoStream || stream == kHostStream ? stream : stream + streams_;
  }
  GroupId Moved(GroupId id) const { return id.valid() ? GroupId(id.index() + groups_) : id; }
  RankId Moved(RankId id) const { return id.valid() ? RankId(id.index() + ranks_) : id; }

  void AddBlock(Block&& block) {
    block.name = Name(block.name);
    for (Op& op : block.ops) {
      op.name = Name(op.name);
      op.module = Name(op.module);
      op.stream = Moved(op.stream);
    }
    for (Comm& comm : block.comms) {
      comm.stream = Moved(comm.stream);
      comm.after = Moved(comm.after);
      if (comm.shares.valid()) comm.shares = SharesId(comm.shares.index() + shares_);
    }
    for (Buffer& buffer : block.buffers) {
      buffer.name = Name(buffer.name);
      buffer.stream = Moved(buffer.stream);
    }
    for (Assumption& a : block.assumed) a.text = Name(a.text);
    for (Routed& routed : block.routed) routed.routing += static_cast<std::uint32_t>(routings_);
    if (streams_ != 0 || shares_ != 0 || (routings_ != 0 && !block.routed.empty())) block.Seal();
    to_.blocks.push_back(std::move(block));
  }
  void AddProgram(Program&& program) {
    for (auto* calls : {&program.prologue, &program.calls}) {
      for (Call& call : *calls) call.block = BlockId(call.block.index() + blocks_);
    }
    to_.programs.push_back(std::move(program));
  }
  void AddGroups() {
    std::vector<RankId> members;
    for (std::size_t g = 0; g < from_.groups.size(); ++g) {
      members.clear();
      for (const RankId id : from_.groups.members(GroupId(g))) members.push_back(Moved(id));
      to_.groups.Add(from_.groups.slot(GroupId(g)), members);
    }
  }
  void AddBinding(Binding binding) {
    binding.program = ProgramId(binding.program.index() + programs_);
    binding.job = JobId(binding.job.index() + to_.jobs.size());
    for (GroupId& id : binding.groups) id = Moved(id);
    for (RankId& id : binding.peers) id = Moved(id);
    to_.bindings.push_back(binding);
  }

  Graph& from_;
  Graph& to_;
  std::size_t blocks_ = 0, programs_ = 0, ranks_ = 0, groups_ = 0, shares_ = 0, routings_ = 0;
  std::uint32_t streams_ = 0;
  std::vector<NameId> names_;
};

}  // namespace

Status Append(Graph&& from, Graph* to) { return Appender(&from, to).Run(); }

}  // namespace orrery::graph
