#include "orrery/results/schema.h"

#include <nlohmann/json.hpp>

#include "orrery/results/campaign_report.h"
#include "orrery/results/json.h"
#include "orrery/results/result.h"

namespace orrery::results {
namespace {

using Json = nlohmann::ordered_json;

Json Type(const char* type, const char* description) {
  return {{"type", type}, {"description", description}};
}

Json Array(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }

Json Object(Json properties) {
  Json required = Json::array();
  for (const auto& [key, value] : properties.items()) required.push_back(key);
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", required}};
}

Json BreakdownRowSchema() {
  Json properties = {{"ranks", Type("integer", "ranks that the row is the mean of")}};
  const auto add = [&](const std::string& name) {
    properties[name + "_s"] = Type("number", "seconds");
    properties[name + "_ps"] = Type("integer", "picoseconds");
  };
  add("total");
  for (std::size_t i = 0; i < engine::kParts; ++i) add(PartName(i));
  add("exposed_sp");
  Json row = Object(std::move(properties));
  row["properties"]["stage"] = Type("integer", "pipeline stage; absent in the overall row");
  return row;
}

Json MemoryRowSchema() {
  Json row =
      Object({{"program", Type("string", "what its ranks run")},
              {"stage", Type("integer", "pipeline stage")},
              {"ranks", Type("integer", "ranks that run it")},
              {"peak_allocated_bytes", Type("integer", "torch.cuda.max_memory_allocated")},
              {"peak_reserved_bytes", Type("integer", "torch.cuda.max_memory_reserved")},
              {"context_bytes", Type("integer", "CUDA context and libraries")},
              {"total_bytes", Type("integer", "reserved + context")},
              {"device_bytes", Type("integer", "memory of the GPU")},
              {"parts_at_peak", Type("object", "bytes by kind at the peak")},
              {"peak_op", Type("string", "what ran at the peak")},
              {"peak_requested_bytes", Type("integer", "sum of rounded requests, at its peak")},
              {"cached_at_peak_bytes",
               Type("integer", "reserved and not allocated, when reserved was at its peak")},
              {"cuda_context_bytes", Type("integer", "of the context")},
              {"nccl_bytes", Type("integer", "of NCCL's buffers, in context_bytes")},
              {"allocator_retries", Type("integer", "times the cache was emptied to go on")},
              {"allocator_settled", Type("boolean", "the last iteration repeated")},
              {"allocator_bounded", Type("boolean", "a long run of micro-batches was cut")},
              {"modules_at_peak", Type("array", "bytes by module at the peak, 32 largest")},
              {"oom", Type("boolean", "does not fit")}});
  row["properties"]["oom_state"] =
      Type("object", "with oom: the request, what was free and cached");
  row["properties"]["timeline"] = Type("array", "with memory.timeline: bytes after every call");
  row["properties"]["oom_op"] = {{"type", Json::array({"string", "null"})}};
  return row;
}

Json JobProperties() {
  return {{"ranks", Type("integer", "GPUs")},
          {"description", Type("string", "model and plan in one line")},
          {"step_time_s", Type("number", "steady-state time of a training step")},
          {"step_time_ps", Type("integer", "the same, exact")},
          {"step_time_interval_s", Array({{"type", "number"}})},
          {"settled", Type("boolean", "the step time no longer changed")},
          {"tokens_per_s", Type("number", "over all GPUs")},
          {"model_tflops_per_gpu", Type("number", "10^12 model FLOP/s, recompute not counted")},
          {"mfu",
           {{"type", Json::array({"number", "null"})},
            {"description", "of the dense bf16 peak, fp8 jobs too; fp16, fp32 jobs: of that"}}},
          {"breakdown",
           Object({{"overall", BreakdownRowSchema()}, {"stages", Array(BreakdownRowSchema())}})},
          {"memory", Array(MemoryRowSchema())},
          {"verdict", {{"enum", {"fits", "close", "out_of_memory"}}}},
          {"bound_by", Type("string", "the largest kind of time in a step, and the next")}};
}

// What a job has only sometimes.
Json JobSchema() {
  Json job = Object(JobProperties());
  job["properties"]["memory_interval_bytes"] = Array({{"type", "integer"}});
  job["properties"]["memory_remedy"] = Type("string", "what would make it fit");
  return job;
}

Json Schema(const char* title, const Json& body) {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}};
  schema.update(body);
  return schema;
}

}  // namespace

std::string ResultSchema() {
  Json job = JobSchema();
  job["properties"]["cost"] = CostSchema();
  job["properties"]["goodput"] = GoodputSchema();
  job["properties"]["name"] = Type("string", "of the job file's entry");
  Json common = {
      {"schema", {{"const", kResultSchema}}},
      {"cluster", Type("string", "in one line")},
      {"finish_time_s", Type("number", "end of the last operation simulated")},
      {"finish_time_ps", Type("integer", "the same, exact")},
      {"network",
       Type("object",
            "back end; bytes and busy share per link class; worst links; their use over time")},
      {"provenance", Type("object", "share of kernel time by origin")},
      {"simulation", Type("object", "how the run was made; config_hash, fingerprint")},
      {"assumed", Array({{"type", "string"}})},
      {"ignored", Array({{"type", "string"}})},
      {"unexpected_switches", Array({{"type", "string"}})},
      {"warnings", Array({{"type", "string"}})},
      {"config", Type("object", "the resolved job file")}};
  Json schema = Object(std::move(common));
  schema["properties"]["cost"] = CostSchema();
  schema["properties"]["goodput"] = GoodputSchema();
  const Json goal = Object({{"operations", Type("integer", "of the schedule")},
                            {"messages", Type("integer", "sent")},
                            {"bytes", Type("integer", "sent")},
                            {"unexpected_messages", Type("integer", "sent before their receive")},
                            {"ranks", Array({{"type", "object"}})}});
  const Json shared =
      Object({{"name", Type("string", "of the job file's entry")},
              {"kind", Type("string", "training, or the format of its graph")},
              {"ranks", Type("integer", "of the job")},
              {"slowdown",
               {{"type", Json::array({"number", "null"})},
                {"description", "its time beside the others over its time alone"}}}});
  schema["properties"]["interference"] =
      Type("object", "of several jobs: Jain's index, runs made, matrix of slowdowns by pairs");
  schema["anyOf"] =
      Json::array({JobSchema(), Object({{"jobs", Array(job)}}), Object({{"jobs", Array(shared)}}),
                   Object({{"goal", goal}}), Object({{"trace", goal}})});
  return Schema("Orrery result", schema).dump(2) + "\n";
}

std::string ErrorSchema() {
  Json codes = Json::array();
  for (const Code code :
       {Code::kInvalidInput, Code::kInfeasible, Code::kResource, Code::kInterrupted}) {
    codes.push_back(CodeName(code));
  }
  return Schema("Orrery error",
                Object({{"schema", {{"const", kErrorSchema}}},
                        {"error", Object({{"code", {{"enum", codes}}},
                                          {"message", Type("string", "what and what to do")}})}}))
             .dump(2) +
         "\n";
}

}  // namespace orrery::results
