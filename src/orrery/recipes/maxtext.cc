// MaxText's YAML (AI-Hypercomputer/maxtext, src/maxtext/configs/base.yml) for GPUs: rules that join
// several keys; what one key says alone stands in data/recipes/maxtext.csv. A file's base_config is
// base.yml, whose values are the table's fallbacks. Meaning of the mesh and of the policies:
// base.yml; src/maxtext/layers/decoders.py (get_remat_policy), docs of jax.checkpoint_policies.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "orrery/base/text.h"
#include "orrery/recipes/configuration.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/reading.h"

namespace orrery::recipes {
namespace {

void ReadShapes(Reading* r) {
  Draft& draft = r->draft();
  constexpr std::pair<const char*, const char*> kWhole[] = {
      {"base_num_decoder_layers", "model.layers"},
      {"base_emb_dim", "model.hidden"},
      {"base_num_query_heads", "model.heads"},
      {"base_num_kv_heads", "model.kv_heads"},
      {"head_dim", "model.head_dim"},
      {"base_mlp_dim", "model.ffn_hidden"},
      {"vocab_size", "model.vocab"}};
  const bool named = draft.Has("model");
  for (const auto& [argument, key] : kWhole) {
    const auto value = r->Whole(argument);
    if (value && (!named || r->Has(argument))) draft.Set(key, *value);
  }
  const auto experts = r->Whole("num_experts"), top = r->Whole("num_experts_per_tok");
  const auto width = r->Whole("base_moe_mlp_dim");
  const auto shared = r->Whole("shared_experts"), dense = r->Whole("first_num_dense_layers");
  if (experts && *experts > 1 && (!named || r->Has("num_experts"))) {
    draft.Set("model.experts", *experts);
    draft.Set("model.expert_top_k", top.value_or(1));
    const std::int64_t each = width && *width > 0 ? *width : draft.Whole("model.ffn_hidden", 0);
    if (each > 0) draft.Set("model.expert_ffn_hidden", each);
    if (shared && *shared > 0) draft.Set("model.shared_ffn_hidden", *shared * each);
    if (dense && *dense > 0) draft.Set("model.first_dense_layers", *dense);
  }
  const std::vector<std::string> gate = r->Texts("mlp_activations");
  const std::string block = r->Text("decoder_block");
  if (!named) {
    if (block != "llama2" && block != "mistral" && block != "mixtral" && block != "default") {
      r->Refuse("decoder_block", fmt::format("'{}' by shapes of one's own is not read; llama2, "
                                             "mistral and mixtral are, and a model_name",
                                             Printable(block, 40)));
    }
    draft.SetText("model.norm", "rmsnorm");
    draft.SetText("model.position", "rotary");
    draft.SetText("model.activation", gate.empty() || gate.size() == 2 ? "swiglu" : "gelu");
    draft.Set("model.attention_bias", r->On("attention_bias"));
    draft.Set("model.mlp_bias", false);
    draft.Set("model.tied_embeddings", r->On("logits_via_embedding"));
    draft.SetText("model.name", "maxtext");
  }
  if (r->On("use_qk_norm") && !named) draft.Set("model.qk_norm", true);
  const double dropout = r->Real("dropout_rate", 0);
  const bool drops = r->Find("enable_dropout") == nullptr || r->On("enable_dropout");
  if (drops && dropout > 0) draft.Set("model.dropout", fmt::format("{}", dropout));
}

struct Mesh {
  std::int64_t data = 1, fsdp = 1, tensor = 1, sequence = 1, context = 1, pipeline = 1, expert = 1;
};

// The degrees of one network (ici: within a host, dcn: between hosts), -1 being what is left.
Mesh ReadMesh(std::string_view network, std::int64_t places, Reading* r) {
  constexpr std::array<std::string_view, 9> kAxes = {
      "data",     "fsdp",  "fsdp_transpose", "sequence", "context", "tensor", "tensor_sequence",
      "pipeline", "expert"};
  std::array<std::int64_t, 9> degrees{};
  std::int64_t product = 1;
  std::size_t open = kAxes.size();
  for (std::size_t i = 0; i < kAxes.size(); ++i) {
    const std::string argument = fmt::format("{}_{}_parallelism", network, kAxes[i]);
    degrees[i] = r->Whole(argument).value_or(1);
    if (degrees[i] == -1 && open == kAxes.size()) {
      open = i;
    } else if (degrees[i] < 1) {
      r->Problem(fmt::format("{}: {} is {}; write a whole number from 1, or one -1 a network",
                             r->Where(argument), argument, degrees[i]));
      degrees[i] = 1;
    } else if (product < (std::int64_t{1} << 40)) {
      product *= degrees[i];
    }
  }
  if (open < kAxes.size() && places > 0) {
    if (places % product != 0) {
      r->Problem(fmt::format(
          "{}: {} {} are no multiple of the {} that the axes {}_*_parallelism "
          "say",
          r->file(), places, network == "ici" ? "GPUs of a host" : "hosts", product, network));
    }
    degrees[open] = std::max<std::int64_t>(1, places / product);
  } else if (open < kAxes.size()) {
    degrees[open] = 1;
  } else if (places > 0 && product != places) {
    r->Problem(fmt::format("{}: the axes {}_*_parallelism make {}, and there are {} {}", r->file(),
                           network, product, places,
                           network == "ici" ? "GPUs of a host" : "hosts"));
  }
  return {.data = degrees[0],
          .fsdp = degrees[1] * degrees[2],
          .tensor = degrees[5],
          .sequence = degrees[3] * degrees[6],
          .context = degrees[4],
          .pipeline = degrees[7],
          .expert = degrees[8]};
}

void ReadMaxTextParallelism(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t host = r->ClusterGpusPerNode();
  std::int64_t nodes = r->options().nodes;
  if (nodes == 0) nodes = r->SetWhole("nodes").value_or(0);
  if (nodes == 0 && r->options().gpus > 0 && host > 0) {
    nodes = std::max<std::int64_t>(1, r->options().gpus / host);
  }
  const std::string rest = r->Text("dcn_data_parallelism") + r->Text("dcn_fsdp_parallelism");
  const bool fills = rest.find("-1") != std::string::npos;
  if (nodes == 0) {
    if (fills) {
      return r->Missing(
          "how many GPUs it runs on (dcn_*_parallelism -1 is what is left): give "
          "--gpus N or --nodes N");
    }
  }
  const std::int64_t local =
      r->options().gpus > 0 && r->options().gpus < host ? r->options().gpus : host;
  const Mesh ici = ReadMesh("ici", local, r), dcn = ReadMesh("dcn", nodes, r);
  const std::int64_t sequence = ici.sequence * dcn.sequence;
  const std::int64_t tp = ici.tensor * dcn.tensor * sequence;
  const std::int64_t cp = ici.context * dcn.context, pp = ici.pipeline * dcn.pipeline;
  const std::int64_t ep = ici.expert * dcn.expert;
  const std::int64_t fsdp = ici.fsdp * dcn.fsdp, data = ici.data * dcn.data;
  draft.Set("parallel.tp", tp);
  if (sequence > 1) draft.Set("parallel.sequence_parallel", true);
  if (pp > 1) draft.Set("parallel.pp", pp);
  if (ep > 1) draft.Set("parallel.ep", ep);
  const std::string exchange = r->Text("context_parallel_strategy");
  if (cp > 1) {
    draft.Set("parallel.cp", cp);
    draft.SetText("framework_options.cp_exchange", exchange == "ring"         ? "ring"
                                                   : exchange == "all_gather" ? "all-gather"
                                                                              : exchange);
  }
  draft.Set("parallel.dp", fsdp * data * ep);
  if (fills && local == host && fsdp * data * ep * tp * cp * pp == nodes * host) {
    r->SayNodes(nodes);
  }
  draft.SetText("training.sharding", fsdp * ep > 1 ? "zero3" : "none");
  const std::optional<workload::Model> model =
      data > 1 && fsdp * ep > 1 ? r->Model() : std::nullopt;
  if (model && model->experts.count > 0) {
    const std::string_view axis = dcn.data > 1 ? "dcn" : "ici";
    r->Problem(fmt::format(
        "{0}: {1}_data_parallelism copies a model with experts {2} times{3}, and copies of shards "
        "are not modelled for experts; set {1}_data_parallelism 1 and {1}_fsdp_parallelism -1",
        r->Where(fmt::format("{}_data_parallelism", axis)), axis, data,
        r->Has(fmt::format("{}_data_parallelism", axis)) ? "" : ", by base.yml's default"));
  } else if (data > 1 && fsdp * ep > 1) {
    draft.Set("parallel.shard_group", fsdp * ep * cp);
  }
  if (pp > 1) {
    r->Refuse(ici.pipeline > 1 ? "ici_pipeline_parallelism" : "dcn_pipeline_parallelism",
              "MaxText's pipeline, one program over all stages, is not modelled");
  }
}

void ReadMaxTextBatch(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t dp = draft.Whole("parallel.dp", 0);
  const double each = r->Real("per_device_batch_size", 12);
  const std::int64_t passes = r->Whole("gradient_accumulation_steps").value_or(1);
  draft.Set("training.seq_len", r->Whole("max_target_length").value_or(2048));
  if (dp < 1) return;
  const std::int64_t replica = draft.Whole("parallel.tp", 1) * draft.Whole("parallel.cp", 1);
  const double sequences = each * static_cast<double>(replica);
  const auto micro = static_cast<std::int64_t>(sequences);
  if (!(sequences >= 1) || sequences > 65536 || static_cast<double>(micro) != sequences ||
      passes < 1) {
    return r->Problem(fmt::format(
        "{}: per_device_batch_size {} on {} GPUs a replica is no whole number of sequences",
        r->Where("per_device_batch_size"), each, replica));
  }
  draft.Set("training.micro_batch", micro);
  draft.Set("training.global_batch", micro * passes * dp);
}

void ReadRemat(Reading* r) {
  Draft& draft = r->draft();
  const std::string policy = r->Text("remat_policy");
  const std::string_view keeps =
      policy == "full"                                                     ? "nothing"
      : policy == "save_qkv_proj"                                          ? "qkv"
      : policy.starts_with("save_dot_") && Contains(policy, "_except_mlp") ? "qkv_out"
      : policy == "minimal" || policy == "minimal_flash" || policy == "minimal_with_context"
          ? "products"
          : "";
  if (policy == "none") {
    draft.SetText("training.recompute", "none");
  } else if (keeps.empty()) {
    r->Refuse("remat_policy", fmt::format("'{}' is not modelled; full, save_qkv_proj, "
                                          "save_dot_except_mlp, minimal, minimal_with_context and "
                                          "none are",
                                          Printable(policy, 60)));
  } else {
    draft.SetText("training.recompute", "full");
    draft.SetText("framework_options.recompute_keeps", keeps);
    if (policy == "save_dot_except_mlpwi") {
      draft.Assume(
          "remat_policy save_dot_except_mlpwi: the feed-forward's last product is kept as well, "
          "and here it is computed again");
    }
    if (policy == "minimal_flash" || Contains(policy, "with_context")) {
      draft.Assume(fmt::format(
          "remat_policy {}: attention's output is kept as well, and here it is computed again",
          policy));
    }
  }
}

void ReadNumbers(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = r->Text("dtype"), weights = r->Text("weight_dtype");
  const std::string low = r->Text("quantization");
  if (low.empty()) {
    draft.SetText("training.precision", type == "bfloat16"  ? "bf16"
                                        : type == "float16" ? "fp16"
                                                            : "fp32");
  } else if (low == "fp8" || low == "fp8_full" || low == "nanoo_fp8" ||  // AMD's numbers
             low.starts_with("te_fp8")) {
    draft.SetText("training.precision", "fp8");
    draft.SetText("framework_options.fp8_recipe",
                  low.find("current") != std::string::npos ? "current" : "delayed");
  } else if (low == "te_mxfp8") {
    draft.SetText("training.precision", "mxfp8");
  } else {
    r->Refuse("quantization",
              fmt::format("'{}' is not modelled; fp8, nanoo_fp8, te_fp8_* and te_mxfp8 are",
                          Printable(low, 40)));
  }
  if (weights == type && weights != "float32") {
    // Gradients come in the parameters' type, and optax makes its moments so.
    draft.Set("framework_options.model_type_states", true);
  } else if (weights != "float32") {
    r->Refuse("weight_dtype",
              fmt::format("parameters in '{}' beside products in '{}' are not modelled",
                          Printable(weights, 20), Printable(type, 20)));
  }
  const std::string attention = r->Text("attention");
  if (attention == "cudnn_flash_te") {
    draft.SetText("framework_options.attention", "cudnn");
  } else if (attention == "dot_product") {
    draft.SetText("framework_options.attention", "unfused");
  } else if (attention != "autoselected") {
    r->Refuse("attention", fmt::format("'{}' is not modelled on GPUs; cudnn_flash_te, dot_product "
                                       "and autoselected are",
                                       Printable(attention, 40)));
  }
  const std::string optimizer = r->Text("opt_type");
  if (optimizer == "adamw" || optimizer == "adam_pax") {
    draft.SetText("training.optimizer", "adamw");
  } else if (optimizer == "sgd" || optimizer == "muon") {
    draft.SetText("training.optimizer", optimizer);
  } else {
    r->Refuse("opt_type", "modelled: adamw, adam_pax, sgd, muon");
  }
  draft.Set("framework_options.stacked_layers",
            r->Find("scan_layers") == nullptr || r->On("scan_layers"));
  draft.Set("framework_options.embedding_product", r->On("use_iota_embed"));
  if (r->Real("gradient_clipping_threshold", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
  const bool host = r->On("optimizer_memory_host_offload");
  if (r->On("parameter_memory_host_offload")) {
    r->Refuse("parameter_memory_host_offload", "parameters in host memory are not modelled here");
  } else if (host) {
    draft.SetText("training.offload", "optimizer");
  }
  const double capacity = r->Real("capacity_factor", -1);
  const bool random = r->On("use_random_routing");
  const std::optional<workload::Model> model = r->Model();
  if (!model || model->experts.count == 0) return;
  if (random) draft.SetText("training.moe_routing", "balanced");
  if (capacity > 0) {  // so many rows an expert, whatever falls
    draft.Set("training.moe_imbalance", fmt::format("{}", capacity));
    draft.Set("training.moe_pad_to_capacity", true);
  }
}

}  // namespace

const Table& MaxTextTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_maxtext.inc"
  };
  static const Table table(kLines);
  return table;
}

bool IsMaxText(std::string_view text, const std::string& path) {
  if (!IsYaml(path)) return false;
  const auto has = [&](std::string_view key) {
    return text.starts_with(key) || text.find(fmt::format("\n{}", key)) != std::string_view::npos;
  };
  return has("per_device_batch_size:") && (has("base_config:") || has("max_target_length:"));
}

void ReadMaxTextRules(const std::string& model_file, Reading* r) {
  const std::string hardware = r->Text("hardware");
  if (hardware != "gpu" && hardware != "gpu_multiprocess") {
    r->Refuse(
        "hardware",
        fmt::format("it is for '{}'{}; no TPU has kernel times here, so write 'gpu' and "
                    "give a cluster of GPUs",
                    Printable(hardware, 40), r->Has("hardware") ? "" : ", base.yml's default"));
  }
  const std::string name = r->Text("model_name");
  if (name != "default" || !model_file.empty() || !r->options().model.empty()) {
    ReadModel("maxtext", model_file, name, "model_name", r);
  }
  r->draft().SetText("framework", "jax-fsdp");
  ReadShapes(r);
  ReadMaxTextParallelism(r);
  ReadMaxTextBatch(r);
  ReadRemat(r);
  ReadNumbers(r);
}

Result<Imported> ReadMaxText(const std::vector<File>& files, const Options& options) {
  ORRERY_ASSIGN_OR_RETURN(const Configuration taken, TakeConfiguration(files, "MaxText"));
  const File& file = taken.file;
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document, ParseConfiguration(file));
  Reading reading({&MaxTextTable()}, options, file.path);
  AddLeaves(document, document.root, {&MaxTextTable()}, &reading);
  reading.Translate();
  ReadMaxTextRules(taken.model, &reading);
  return reading.Finish("maxtext");
}

}  // namespace orrery::recipes
