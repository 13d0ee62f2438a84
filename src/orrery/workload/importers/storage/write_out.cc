// The graph of requests in compact form.
#include "orrery/workload/importers/storage/host_program.h"
#include "orrery/workload/importers/storage/storage.h"

namespace orrery::workload {
namespace {

using Op = HostProgram::Op;
constexpr Op kNoOp = HostProgram::kNone;

class GraphWriter {
 public:
  explicit GraphWriter(StorageImport* import)
      : services_(import->services), requests_(import->requests), done_(services_.all.size()) {
    for (std::uint32_t rank = 0; rank < services_.ranks; ++rank) {
      programs_.emplace_back(rank, services_.ranks);
    }
    clocks_.resize(services_.ranks);
  }

  void Write(std::uint32_t number) {
    const graph::Services::One& one = services_.all[number];
    const graph::Request& request = requests_.all[number];
    const std::uint32_t* const hosts = &services_.hosts[one.first_host];
    Clock& clock = clocks_[hosts[0]];
    const bool behind = request.after != graph::Request::kNone;
    Op begin = behind ? done_[request.after] : clock.arrival;
    if (const SimTime wait = graph::DelayBefore(request, &clock.at); wait > 0) {
      begin = programs_[hosts[0]].Delay(wait, {begin});
      if (!behind) clock.arrival = begin;
    }
    const Op mounted = one.mount == graph::Request::kNone ? kNoOp : done_[one.mount];
    ops_.clear();
    for (const graph::Shape::Node& node : services_.shapes[one.shape].nodes) {
      after_.clear();
      if (node.begins) after_ = {begin, mounted};
      for (const std::uint32_t a : node.after) after_.push_back(ops_[a]);
      ops_.push_back(WriteNode(one, node, hosts));
    }
    done_[number] = ops_.back();
  }
  void Finish(graph::Graph* graph) {
    for (std::uint32_t rank = 0; rank < services_.ranks; ++rank) {
      std::move(programs_[rank]).Finish(rank, graph);
    }
  }

 private:
  struct Clock {
    Op arrival = kNoOp;  // the latest time that was written
    SimTime at = 0;      // it
  };

  Op WriteNode(const graph::Services::One& one, const graph::Shape::Node& node,
               const std::uint32_t* hosts) {
    HostProgram& program = programs_[hosts[node.host]];
    const auto peer = [&] { return hosts[services_.shapes[one.shape].nodes[node.other].host]; };
    const std::int32_t tag = one.first_tag + static_cast<std::int32_t>(node.part);
    switch (node.step) {
      case graph::Shape::Step::kSend:
        return program.Send(peer(), node.amount, tag, after_);
      case graph::Shape::Step::kReceive:
        return program.Receive(peer(), node.amount, tag, after_);
      case graph::Shape::Step::kWork:
        return program.Work(node.amount, after_);
      case graph::Shape::Step::kDone:
        break;
    }
    return program.Done(after_);
  }

  const graph::Services& services_;
  const graph::Requests& requests_;
  std::vector<HostProgram> programs_;  // by rank
  std::vector<Clock> clocks_;          // by rank
  std::vector<Op> done_;               // by request
  std::vector<Op> ops_, after_;
};

}  // namespace

void WriteOut(StorageImport* import) {
  GraphWriter writer(import);
  for (std::uint32_t i = 0; i < import->services.all.size(); ++i) writer.Write(i);
  writer.Finish(&import->graph);
}

}  // namespace orrery::workload
