#include "orrery/workload/importers/msccl/msccl.h"

#include <charconv>
#include <map>

#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/chakra.h"

namespace orrery::workload {
namespace {

using formats::ChakraNode;
using formats::ChakraNodeType;
using formats::XmlElement;

Result<std::int64_t> Number(const XmlElement& e, std::string_view name, std::int64_t least) {
  const std::string* text = e.Find(name);
  std::int64_t value = 0;
  if (text != nullptr) {
    const auto [at, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error == std::errc() && at == text->data() + text->size() && value >= least &&
        value <= 1'000'000) {
      return value;
    }
  }
  return InvalidInput("line {}: {} of <{}>: a whole number from {} is expected", e.line, name,
                      Printable(e.name, 20), least);
}

struct Kind {
  bool receives = false, sends = false;
};
Result<Kind> KindOf(const XmlElement& step) {
  constexpr std::string_view kTypes[] = {"s", "r", "rrc", "rcs", "rrs", "rrcs", "cpy", "re", "nop"};
  const std::string* type = step.Find("type");
  const std::string word = type == nullptr ? "" : *type;
  if (word == "s") return Kind{false, true};
  if (word == "r" || word == "rrc") return Kind{true, false};
  if (word == "rcs" || word == "rrs" || word == "rrcs") return Kind{true, true};
  if (word == "cpy" || word == "re" || word == "nop") return Kind{};
  return InvalidInput("line {}: {}", step.line, UnknownName("type", Printable(word, 20), kTypes));
}

class Writer {
 public:
  Writer(std::uint64_t chunk, std::uint32_t gpu) : chunk_(chunk), gpu_(gpu) {}

  Result<std::string> Write(const XmlElement& gpu) {
    ORRERY_RETURN_IF_ERROR(NumberSteps(gpu));
    for (const XmlElement& block : gpu.children) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t id, Number(block, "id", 0));
      std::int64_t before = -1;
      for (const XmlElement& step : block.children) {
        ORRERY_RETURN_IF_ERROR(AddStep(block, step, id, &before));
      }
    }
    return out_.Release();
  }

 private:
  Status NumberSteps(const XmlElement& gpu) {
    std::uint64_t next = 0;
    for (const XmlElement& block : gpu.children) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t id, Number(block, "id", 0));
      for (const XmlElement& step : block.children) {
        ORRERY_ASSIGN_OR_RETURN(const std::int64_t s, Number(step, "s", 0));
        ORRERY_ASSIGN_OR_RETURN(const Kind kind, KindOf(step));
        next += kind.receives && kind.sends ? 2 : 1;
        if (!last_.try_emplace({id, s}, next - 1).second) {
          return InvalidInput("line {}: a second step {} of thread block {}", step.line, s, id);
        }
      }
    }
    return {};
  }

  Status AddStep(const XmlElement& block, const XmlElement& step, std::int64_t id,
                 std::int64_t* before) {
    ORRERY_ASSIGN_OR_RETURN(const Kind kind, KindOf(step));
    std::vector<std::uint64_t> deps;
    if (*before >= 0) deps.push_back(static_cast<std::uint64_t>(*before));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t on, Number(step, "depid", -1));
    if (on >= 0) {
      ORRERY_ASSIGN_OR_RETURN(const std::int64_t s, Number(step, "deps", 0));
      const auto at = last_.find({on, s});
      if (at == last_.end()) {
        return InvalidInput("line {}: depends on step {} of thread block {}, which there is none",
                            step.line, s, on);
      }
      deps.push_back(at->second);
    }
    if (!kind.receives && !kind.sends) {
      ChakraNode node;
      node.type = ChakraNodeType::kCompute;
      Add(node, deps);
    }
    if (kind.receives) {
      ORRERY_RETURN_IF_ERROR(AddMessage(block, step, false, deps));
      if (kind.sends) deps = {next_ - 1};
    }
    if (kind.sends) ORRERY_RETURN_IF_ERROR(AddMessage(block, step, true, deps));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t s, Number(step, "s", 0));
    *before = static_cast<std::int64_t>(last_.at({id, s}));
    return {};
  }

  Status AddMessage(const XmlElement& block, const XmlElement& step, bool send,
                    const std::vector<std::uint64_t>& deps) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t peer, Number(block, send ? "send" : "recv", 0));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t channel, Number(block, "chan", 0));
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t chunks, Number(step, "cnt", 1));
    ChakraNode node;
    node.type = send ? ChakraNodeType::kSend : ChakraNodeType::kReceive;
    node.source = send ? gpu_ : static_cast<std::uint32_t>(peer);
    node.destination = send ? static_cast<std::uint32_t>(peer) : gpu_;
    node.tag = static_cast<std::uint32_t>(channel);
    node.comm_size = chunk_ * static_cast<std::uint64_t>(chunks);
    node.has =
        ChakraNode::kSource | ChakraNode::kDestination | ChakraNode::kTag | ChakraNode::kCommSize;
    Add(node, deps);
    return {};
  }
  void Add(ChakraNode node, const std::vector<std::uint64_t>& deps) {
    node.id = next_++;
    out_.Add(node, "", "", deps);
  }

  std::uint64_t chunk_, next_ = 0;
  std::uint32_t gpu_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> last_;  // by thread block and step
  formats::ChakraWriter out_;
};

}  // namespace

Result<std::string> MscclToChakra(const XmlElement& algo, std::uint32_t gpu, std::uint64_t bytes) {
  if (algo.name != "algo") return InvalidInput("line {}: <algo> is expected", algo.line);
  ORRERY_ASSIGN_OR_RETURN(const std::int64_t chunks, Number(algo, "nchunksperloop", 1));
  const std::uint64_t chunk = bytes / static_cast<std::uint64_t>(chunks);
  if (chunk == 0) return InvalidInput("{} bytes are no {} chunks (nchunksperloop)", bytes, chunks);
  for (const XmlElement& e : algo.children) {
    ORRERY_ASSIGN_OR_RETURN(const std::int64_t id, Number(e, "id", 0));
    if (id == static_cast<std::int64_t>(gpu)) return Writer(chunk, gpu).Write(e);
  }
  return InvalidInput("has no <gpu> {}", gpu);
}

}  // namespace orrery::workload
