#include "orrery/workload/generators/block_writer.h"

#include <utility>

namespace orrery::workload {

using graph::OpKind;

NameId Names::Intern(std::string_view name) {
  const auto at = ids_.find(name);
  if (at != ids_.end()) return at->second;
  const NameId id(names_.size());
  names_.emplace_back(name);
  ids_.emplace(std::string(name), id);
  return id;
}

BlockWriter::BlockWriter(Names* names, std::string_view name, graph::Pass pass) : names_(names) {
  block_.name = names->Intern(name);
  block_.pass = pass;
  module_ = block_.name;
}

graph::Op BlockWriter::Make(OpKind kind, std::size_t index, NameId name) const {
  return {
      .kind = kind, .index = static_cast<std::uint32_t>(index), .name = name, .module = module_};
}

void BlockWriter::Kernel(std::string_view name, const graph::Kernel& kernel) {
  block_.ops.push_back(Make(OpKind::kKernel, block_.kernels.size(), names_->Intern(name)));
  block_.kernels.push_back(kernel);
}

void BlockWriter::Comm(std::string_view name, const graph::Comm& comm) {
  block_.ops.push_back(Make(OpKind::kComm, block_.comms.size(), names_->Intern(name)));
  block_.comms.push_back(comm);
}

void BlockWriter::Wait(std::string_view name, std::int16_t event) {
  graph::Op op = Make(OpKind::kWait, 0, names_->Intern(name));
  op.event = event;
  block_.ops.push_back(op);
}

void BlockWriter::HostSync(std::string_view name) {
  block_.ops.push_back(Make(OpKind::kHostSync, 0, names_->Intern(name)));
}

void BlockWriter::HostPace(std::string_view name) {
  block_.ops.push_back(Make(OpKind::kHostPace, 0, names_->Intern(name)));
}

void BlockWriter::Host(std::string_view name, std::int64_t ns) {
  if (ns == 0) return;
  block_.ops.push_back(Make(OpKind::kHost, block_.host_ps.size(), names_->Intern(name)));
  block_.host_ps.push_back(ns * 1000);
}

void BlockWriter::Memory(OpKind kind, const graph::Buffer& buffer) {
  if (buffer.bytes == 0) return;
  block_.ops.push_back(Make(kind, block_.buffers.size(), buffer.name));
  block_.buffers.push_back(buffer);
}

graph::Buffer BlockWriter::Temporary(std::string_view name, std::int64_t bytes,
                                     graph::MemoryKind kind) {
  return Named(next_temporary_++, name, bytes, kind, graph::Lifetime::kCall);
}

graph::Buffer BlockWriter::Named(std::uint32_t id, std::string_view name, std::int64_t bytes,
                                 graph::MemoryKind kind, graph::Lifetime lifetime) {
  return {
      .id = id, .kind = kind, .lifetime = lifetime, .bytes = bytes, .name = names_->Intern(name)};
}

graph::Block BlockWriter::Finish() {
  block_.Seal();
  return std::move(block_);
}

}  // namespace orrery::workload
