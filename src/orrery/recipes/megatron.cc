// Megatron-LM and Megatron Core: a launch script, a command line, or its YAML. Rules that join
// several arguments; what one argument says alone stands in data/recipes/megatron.csv. Source of
// defaults and meaning: NVIDIA/Megatron-LM, megatron/training/arguments.py (validate_args) and
// megatron/core/transformer/transformer_config.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "orrery/base/text.h"
#include "orrery/recipes/dialects.h"
#include "orrery/recipes/known_models.h"
#include "orrery/recipes/launch.h"
#include "orrery/recipes/tokenizers.h"

namespace orrery::recipes {
namespace {

void ReadFeedForward(Reading* r) {
  Draft& draft = r->draft();
  const bool swiglu = r->On("--swiglu"), quick = r->On("--quick-geglu");
  const bool squared = r->On("--squared-relu");
  draft.Set("model.activation", std::string(swiglu || quick ? "swiglu"
                                            : squared       ? "squared_relu"
                                                            : "gelu"));
  const std::int64_t hidden = draft.Whole("model.hidden", 0);
  const auto ffn = r->Whole("--ffn-hidden-size");
  const std::int64_t width = ffn ? *ffn : swiglu ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden;
  if (width > 0) draft.Set("model.ffn_hidden", width);
  if (r->Has("--activation-func-clamp-value") && draft.Has("model.experts")) {
    draft.Set("model.clamped_activation", true);
  }
  const bool unfused = swiglu ? r->On("--no-bias-swiglu-fusion") : r->On("--no-bias-gelu-fusion");
  if (unfused) draft.Set("framework_options.fused_bias_activation", false);
}

// Megatron has one variant that is built here; a layer of it may run without an indexer of its own.
void ReadSparseAttention(Reading* r) {
  const std::string variant = r->Text("--experimental-attention-variant");
  const std::int64_t each = r->Whole("--dsa-indexer-topk-freq").value_or(1);
  constexpr std::pair<const char*, const char*> kKeys[] = {
      {"--dsa-indexer-n-heads", "model.index_n_heads"},
      {"--dsa-indexer-head-dim", "model.index_head_dim"},
      {"--dsa-indexer-topk", "model.index_topk"}};
  for (const auto& [argument, key] : kKeys) {
    const auto value = r->Whole(argument);
    if (variant == "dsa" && value) r->draft().Set(key, *value);
  }
  if (variant.empty() || variant == "None") return;
  if (variant != "dsa") {
    return r->Refuse("--experimental-attention-variant",
                     "this attention has no cost model; dsa has");
  }
  if (each > 1) {
    r->Refuse("--dsa-indexer-topk-freq", "layers that share an index are not modelled");
  }
}

void ReadAttentionShape(Reading* r) {
  Draft& draft = r->draft();
  if (r->On("--group-query-attention")) {
    if (const auto groups = r->Whole("--num-query-groups")) draft.Set("model.kv_heads", *groups);
  } else {
    r->Find("--num-query-groups");  // counts only with the flag
  }
  const bool bias = !r->On("--disable-bias-linear"), qkv = r->On("--add-qkv-bias");
  draft.Set("model.attention_bias", bias || qkv);
  draft.Set("model.mlp_bias", bias);
  if (qkv && !bias) draft.Set("model.projection_bias", false);
  const std::string latent[] = {"--q-lora-rank", "--kv-lora-rank", "--qk-head-dim",
                                "--qk-pos-emb-head-dim", "--v-head-dim"};
  const std::string keys[] = {"model.q_lora_rank", "model.kv_lora_rank", "model.qk_nope_head_dim",
                              "model.qk_rope_head_dim", "model.v_head_dim"};
  const bool is_latent = r->On("--multi-latent-attention");
  for (std::size_t i = 0; i < std::size(latent); ++i) {
    const auto value = r->Whole(latent[i]);
    if (is_latent && value && *value > 0) draft.Set(keys[i], *value);
  }
  ReadSparseAttention(r);
}

void ReadPositions(Reading* r) {
  Draft& draft = r->draft();
  const std::string type = r->Text("--position-embedding-type");
  const bool rotary = type == "rope" || type == "yarn" || type == "mrope" ||
                      r->On("--use-rotary-position-embeddings");
  // ALiBi is a bias inside the attention kernel.
  const bool none = type == "none" || type == "alibi" || r->On("--no-position-embedding");
  if (type == "relative") {
    r->Refuse("--position-embedding-type", "relative positions' bias in attention is not modelled");
  }
  draft.Set("model.position", std::string(rotary ? "rotary" : none ? "none" : "learned"));
  if (type == "yarn") draft.Set("model.scaled_rotary", true);
  if (!rotary) draft.Drop("model.scaled_rotary");  // --no-rope-fusion of no rotary embedding
  // (left, right): keys before a query, itself not counted.
  const std::vector<std::int64_t> window = [&] {
    std::string text;
    for (const std::string& part : r->Texts("--window-size")) text += part + " ";
    std::ranges::replace(text, ',', ' ');
    std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == '[' || c == ']'; });
    std::vector<std::int64_t> numbers;
    const char* at = text.data();
    const char* end = at + text.size();
    while (at < end) {
      std::int64_t value = 0;
      const auto [stop, error] = std::from_chars(at, end, value);
      if (error == std::errc()) numbers.push_back(value);
      at = error == std::errc() ? stop : at + 1;
    }
    return numbers;
  }();
  const std::string every = r->Text("--window-attn-skip-freq");
  if (window.empty() || window[0] < 0) return;
  draft.Set("model.window", window[0] + 1);
  if (every.empty()) return;
  if (every.find('[') == std::string::npos) {
    draft.SetText("model.full_every", every);
    draft.Set("model.full_every", every);
    return;
  }
  const auto list = ParsePythonList(every);
  const auto full =
      list ? std::ranges::find(*list, 0) : std::vector<std::int64_t>::const_iterator();
  const std::int64_t period = list ? full - list->begin() + 1 : 0;
  bool regular = list.has_value() && full != list->end();
  for (std::size_t i = 0; regular && i < list->size(); ++i) {
    regular = ((static_cast<std::int64_t>(i) + 1) % period == 0) == ((*list)[i] == 0);
  }
  if (!regular) {
    return r->Refuse("--window-attn-skip-freq",
                     "windows are modelled in all but the last of every so many layers");
  }
  draft.Set("model.full_every", period);
}

void ReadVocabulary(Reading* r) {
  Draft& draft = r->draft();
  const std::int64_t multiple =
      r->Whole("--make-vocab-size-divisible-by").value_or(128) * draft.Whole("parallel.tp", 1);
  auto padded = r->Whole("--padded-vocab-size");
  if (!padded) padded = r->Whole("--pad-vocab-size-to");
  auto vocab = r->Whole("--vocab-size");
  std::string type = r->Text("--tokenizer-type"), model = r->TextIfKnown("--tokenizer-model");
  // Names that forks give it, and what Pai-Megatron-Patch adds to its tokens.
  if (model.empty()) model = r->TextIfKnown("--tokenizer-name-or-path");
  if (model.empty()) model = r->TextIfKnown("--patch-tokenizer-type");
  const bool merges = r->Has("--merge-file");
  const std::int64_t extra =
      r->Whole("--vocab-extra-ids").value_or(0) + r->Whole("--extra-vocab-size").value_or(0);
  const bool pads = !r->On("--no-pad-vocab-size");
  if (!padded && !vocab) {
    // pretrain_gpt.py and pretrain_bert.py bring a type of their own.
    if (type.empty() && merges) type = "GPT2BPETokenizer";
    if (type.empty() && draft.Has("model.encoder")) type = "BertWordPieceLowerCase";
    const std::string name = type == "Llama2Tokenizer"                ? "llama-2"
                             : type == "GPT2BPETokenizer"             ? "gpt2"
                             : type.starts_with("BertWordPieceLower") ? "bert-uncased"
                             : type.starts_with("BertWordPiece")      ? "bert-cased"
                                                                      : model;
    if (const Tokenizer* found = FindTokenizer(name)) {
      vocab = found->vocab;
      draft.Assume(fmt::format("model.vocab: {} of the tokenizer {} ({})", found->vocab,
                               found->name, found->source));
    }
  }
  if (r->IsSet("model.vocab")) return;
  if (!padded && !vocab) {
    return r->Missing(fmt::format(
        "how large its vocabulary is{}: give --set model.vocab=N",
        model.empty() ? "" : fmt::format(" (of the tokenizer {})", Printable(model, 60))));
  }
  std::int64_t size = padded.value_or(vocab.value_or(0) + extra);
  if (!padded && pads && multiple > 0) size = (size + multiple - 1) / multiple * multiple;
  draft.Set("model.vocab", size);
}

// What an expert takes at most, where nothing says how tokens fall: as if they fell evenly.
void ReadCapacity(Draft* draft) {
  const std::string* capacity = draft->Find("training.moe_capacity_factor");
  if (capacity == nullptr) return;
  if (draft->Has("training.moe_pad_to_capacity")) {  // so many rows, whatever falls
    draft->Set("training.moe_imbalance", *capacity);
    return draft->Drop("training.moe_capacity_factor");
  }
  draft->Set("training.moe_routing", std::string("drawn-zipf"));
  draft->Set("training.moe_zipf", std::int64_t{0});
  draft->Assume("experts are taken as evenly loaded (training.moe_zipf: 0)");
}

void ReadExperts(Reading* r) {
  Draft& draft = r->draft();
  const std::string freq = r->Text("--moe-layer-freq");
  const std::string type = r->Text("--moe-token-dispatcher-type");
  const std::string backend = r->Text("--moe-flex-dispatcher-backend");
  const bool deepep = r->On("--moe-enable-deepep");
  const bool recomputes = r->On("--moe-layer-recompute");
  if (!draft.Has("model.experts")) {
    for (const char* key :
         {"model.expert_top_k", "model.expert_ffn_hidden", "model.shared_ffn_hidden",
          "training.moe_routing", "training.moe_shared_overlap", "training.moe_comm_overlap",
          "training.moe_delayed_weights", "training.moe_capacity_factor",
          "training.moe_pad_to_capacity", "framework_options.moe_fused_permute",
          "framework_options.moe_fused_router", "parallel.ep", "parallel.etp",
          "framework_options.moe_separate_padding", "model.expert_latent"}) {
      draft.Drop(key);
    }
    return;
  }
  if (!draft.Has("model.expert_top_k")) draft.Set("model.expert_top_k", std::int64_t{2});
  if (!draft.Has("model.expert_ffn_hidden")) {
    draft.Set("model.expert_ffn_hidden", draft.Whole("model.ffn_hidden", 0));
  }
  draft.SetText("training.moe_dispatcher", type == "flex" ? (deepep ? "deepep" : backend) : type);
  if (type == "flex" && !deepep && backend != "deepep" && backend != "hybridep") {
    r->Refuse("--moe-flex-dispatcher-backend", "this dispatcher is not modelled");
  }
  for (const char* key : {"moe_fused_permute", "moe_fused_router"}) {
    const std::string name = fmt::format("framework_options.{}", key);
    if (!draft.Has(name)) draft.Set(name, false);
  }
  if (!draft.Has("training.moe_routing")) ReadCapacity(&draft);
  if (recomputes) {
    draft.Set("training.recompute", std::string("selective"));
    draft.Set("training.recompute_modules", std::string("moe"));
  }
  if (freq.empty() || freq == "1") return;
  const std::int64_t layers = draft.Whole("model.layers", 0);
  std::optional<std::vector<std::int64_t>> list = ParsePythonList(freq);
  if (freq.find('[') == std::string::npos) {
    const auto every = r->Whole("--moe-layer-freq");
    if (!every || *every < 1) return;
    // Megatron's first of every so many has experts, ours the last: as many where it divides.
    if (layers % *every != 0) {
      return r->Refuse("--moe-layer-freq",
                       fmt::format("{} does not divide {} layers", *every, layers));
    }
    draft.Set("model.expert_every", *every);
    draft.Assume(
        fmt::format("--moe-layer-freq {}: experts in the last of every {} layers, not in "
                    "the first",
                    *every, *every));
    return;
  }
  const auto front = list ? std::ranges::find(*list, 1) - list->begin() : 0;
  const bool regular =
      list && static_cast<std::int64_t>(list->size()) == layers &&
      std::all_of(list->begin() + front, list->end(), [](auto n) { return n == 1; });
  if (!regular) {
    return r->Refuse("--moe-layer-freq",
                     fmt::format("layers without experts are modelled at the front of all {}, or "
                                 "every so many",
                                 layers));
  }
  if (front > 0) draft.Set("model.first_dense_layers", static_cast<std::int64_t>(front));
}

// A letter a layer; stages between bars, further tokens' modules behind slashes.
void ReadHybrid(Reading* r) {
  Draft& draft = r->draft();
  std::string pattern = r->Text("--hybrid-layer-pattern");
  const std::string_view argument =
      pattern.empty() ? "--hybrid-override-pattern" : "--hybrid-layer-pattern";
  const std::string older = r->Text("--hybrid-override-pattern");
  const std::string further = r->Text("--mtp-hybrid-override-pattern");
  if (pattern.empty()) pattern = older;
  const auto heads = r->Whole("--mamba-num-heads"), head_dim = r->Whole("--mamba-head-dim");
  const auto groups = r->Whole("--mamba-num-groups");
  r->On("--is-hybrid-model");
  if (pattern.empty()) {
    draft.Drop("model.mamba_state");
    return;
  }
  std::erase_if(pattern, [](char c) { return c == '"' || c == '\'' || c == ' '; });
  const std::size_t slash = pattern.find('/');
  const auto modules = static_cast<std::int64_t>(std::ranges::count(pattern, '/'));
  if (modules > 0 && !draft.Has("model.mtp_layers")) draft.Set("model.mtp_layers", modules);
  pattern = pattern.substr(0, slash);
  std::vector<std::int64_t> chunks(1);
  std::string letters;
  for (const char c : pattern) {
    if (c == '|') {
      chunks.push_back(0);
    } else {
      letters += c;
      ++chunks.back();
    }
  }
  if (const std::size_t odd = letters.find_first_not_of("M*-E"); odd != std::string::npos) {
    return r->Refuse(argument, fmt::format("a layer '{}' is not modelled; M, *, - and E are",
                                           Printable(letters.substr(odd, 1))));
  }
  draft.SetText("model.pattern", letters);
  draft.Set("model.layers", static_cast<std::int64_t>(letters.size()));
  if (!draft.Has("model.mamba_state")) draft.Set("model.mamba_state", std::int64_t{128});
  draft.Set("model.mamba_head_dim", head_dim.value_or(64));
  draft.Set("model.mamba_groups", groups.value_or(8));
  draft.Set("model.mamba_heads",
            heads ? *heads : 2 * draft.Whole("model.hidden", 0) / head_dim.value_or(64));
  const std::int64_t pp = draft.Whole("parallel.pp", 1);
  if (chunks.size() > 1 && static_cast<std::int64_t>(chunks.size()) % pp == 0) {
    const std::int64_t vpp = static_cast<std::int64_t>(chunks.size()) / pp;
    if (vpp > 1) draft.Set("parallel.vpp", vpp);
    if (std::ranges::any_of(chunks, [&](auto n) { return n != chunks[0]; })) {
      draft.Set("parallel.layers_per_stage", fmt::format("[{}]", fmt::join(chunks, ", ")));
    }
  }
}

void ReadPrecision(Reading* r) {
  Draft& draft = r->draft();
  const bool fp16 = r->On("--fp16"), bf16 = r->On("--bf16");
  const bool fp8 = !r->Text("--fp8-format").empty() || r->On("--fp8-hybrid") || r->On("--fp8-e4m3");
  const bool fp4 = !r->Text("--fp4-format").empty();
  const std::string recipe = r->Text("--fp8-recipe"), recipe4 = r->Text("--fp4-recipe");
  std::string precision = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
  if (fp4) {
    precision = "nvfp4";
    if (recipe4 != "nvfp4") r->Refuse("--fp4-recipe", "modelled: nvfp4");
  } else if (fp8 && recipe == "mxfp8") {
    precision = "mxfp8";
  } else if (fp8) {
    precision = "fp8";
    const std::string name = recipe == "tensorwise" ? "current" : recipe;
    if (name != "delayed" && name != "current" && name != "blockwise") {
      r->Refuse("--fp8-recipe", "modelled: delayed, tensorwise, blockwise, mxfp8");
    }
    draft.SetText("framework_options.fp8_recipe", name);
  }
  draft.SetText("training.precision", precision);
  const bool low = fp8 || fp4;
  const bool ends = r->On("--first-last-layers-bf16");
  const auto first = r->Whole("--num-layers-at-start-in-bf16");
  const auto last = r->Whole("--num-layers-at-end-in-bf16");
  if (low && ends) {
    draft.Set("training.bf16_first_layers", first.value_or(1));
    draft.Set("training.bf16_last_layers", last.value_or(1));
  }
  if (!low) {
    for (const char* key : {"low_precision_gather", "fp8_output_layer", "moe_separate_padding"}) {
      draft.Drop(fmt::format("framework_options.{}", key));
    }
  }
  // bf16 runs reduce in fp32 unless told otherwise, fp16 ones if told.
  const bool in16 = r->On("--grad-reduce-in-bf16"),
             in32 = r->On("--accumulate-allreduce-grads-in-fp32") || r->On("--fp32-allreduce");
  if (bf16) draft.Set("framework_options.grad_reduce_fp32", !in16);
  if (fp16) draft.Set("framework_options.grad_reduce_fp32", in32);
}

// Whole layers: which of them, and how many at once.
void ReadFullRecompute(const std::string& method, std::int64_t layers, Reading* r) {
  Draft& draft = r->draft();
  draft.SetText("training.recompute", "full");
  if (!method.empty() && method != "null" && method != "uniform" && method != "block") {
    return r->Problem(
        fmt::format("{}: layers are recomputed by the method uniform or block, not "
                    "'{}'",
                    r->file(), Printable(method, 40)));
  }
  if (method == "block") draft.SetText("training.recompute_method", method);
  if (method == "block" || layers > 1) draft.Set("training.recompute_layers", layers);
}

void ReadRecompute(Reading* r) {
  Draft& draft = r->draft();
  const std::string granularity = r->Text("--recompute-granularity");
  const std::string method = r->Text("--recompute-method");
  const std::int64_t each = r->Whole("--recompute-num-layers").value_or(1);
  const bool oldest = r->On("--checkpoint-activations");
  const std::int64_t oldest_each = r->Whole("--checkpoint-num-layers").value_or(1);
  const std::string old_method = r->Text("--activations-checkpoint-method");
  const std::int64_t old_each = r->Whole("--activations-checkpoint-num-layers").value_or(1);
  const std::vector<std::string> modules = r->Texts("--recompute-modules");
  if (r->On("--recompute-activations") && granularity.empty()) {
    draft.Set("training.recompute", std::string("selective"));
  }
  if (granularity == "selective") {
    draft.Set("training.recompute", std::string("selective"));
    if (!modules.empty()) {
      draft.Set("training.recompute_modules", fmt::format("{}", fmt::join(modules, "+")));
    }
  }
  if (granularity == "full") return ReadFullRecompute(method, each, r);
  if (!old_method.empty()) return ReadFullRecompute(old_method, old_each, r);
  if (oldest) ReadFullRecompute("uniform", oldest_each, r);
}

void ReadSharding(Reading* r) {
  Draft& draft = r->draft();
  const bool distributed = r->On("--use-distributed-optimizer") || r->On("--distributed-optimizer");
  const bool fsdp = r->On("--use-megatron-fsdp") || r->On("--use-custom-fsdp");
  const std::string strategy = r->Text("--data-parallel-sharding-strategy");
  std::string sharding = distributed ? "zero1" : "none";
  if (fsdp) {
    sharding = strategy == "no_shard"      ? "none"
               : strategy == "optim"       ? "zero1"
               : strategy == "optim_grads" ? "zero2"
                                           : "zero3";
  }
  draft.SetText("training.sharding", sharding);
  if (!draft.Has("framework_options.overlap_grad_reduce")) {
    draft.Set("framework_options.overlap_grad_reduce", fsdp);
  }
  if (sharding == "none") {
    draft.Drop("framework_options.overlap_param_gather");
  } else if (!draft.Has("framework_options.overlap_param_gather")) {
    draft.Set("framework_options.overlap_param_gather", fsdp);
  }
  const bool cpu = r->On("--optimizer-cpu-offload");
  const double share = r->Real("--optimizer-offload-fraction", 1);
  if (cpu && share < 1 && share > 0) {
    r->Refuse("--optimizer-offload-fraction",
              "a part of the optimizer in host memory is not modelled; all of it is");
  }
  const std::int64_t layers = r->Whole("--cpu-offloading-num-layers").value_or(0);
  const std::vector<std::string> modules = r->Texts("--offload-modules");
  const bool by_module = r->On("--fine-grained-activation-offloading") && !modules.empty();
  if (layers > 0) draft.Set("training.offload_layers", layers);
  if (by_module) {
    draft.Set("training.offload_modules", fmt::format("{}", fmt::join(modules, "+")));
  }
  const bool activations = layers > 0 || by_module;
  if (cpu || activations) {
    draft.Set("training.offload", std::string(cpu && activations ? "all"
                                              : cpu              ? "optimizer"
                                                                 : "activations"));
  }
  const std::string clip = r->Text("--clip-grad");
  if (r->Has("--clip-grad") && r->Real("--clip-grad", 1) == 0) {
    draft.Set("framework_options.clip_gradients", false);
  }
}

void ReadKernels(Reading* r, const Script* script) {
  Draft& draft = r->draft();
  std::string backend = r->Text("--attention-backend");
  if (const std::size_t dot = backend.find('.'); dot != std::string::npos)
    backend.erase(0, dot + 1);
  const bool flash = r->On("--use-flash-attn");
  const auto variable = [&](const char* name) {
    if (script == nullptr) return std::string();
    const auto found = script->exported.find(name);
    return found == script->exported.end() ? std::string() : found->second.text;
  };
  if (backend == "auto" || backend.empty()) {
    if (variable("NVTE_FUSED_ATTN") == "0" && variable("NVTE_FLASH_ATTN") != "0") backend = "flash";
    if (variable("NVTE_FLASH_ATTN") == "0" && variable("NVTE_FUSED_ATTN") != "0") backend = "fused";
  }
  if (backend == "flash" || (backend.empty() && flash)) {
    draft.Set("framework_options.attention", std::string("flash2"));
  } else if (backend == "fused") {
    draft.Set("framework_options.attention", std::string("cudnn"));
  } else if (backend == "unfused" || backend == "local") {
    draft.Set("framework_options.attention", std::string("unfused"));
  }
  const bool loss = r->On("--cross-entropy-loss-fusion");
  const bool te = r->Text("--cross-entropy-fusion-impl") == "te";
  if (loss) {
    draft.Set(
        te ? "framework_options.online_cross_entropy" : "framework_options.fused_cross_entropy",
        true);
  }
  const bool deferred = r->On("--defer-embedding-wgrad-compute");
  const std::int64_t limit = r->Whole("--wgrad-deferral-limit").value_or(0);
  if (deferred) draft.Set("framework_options.deferred_head", limit > 0 ? limit : 1 << 20);
  const std::vector<std::string> exchange = r->Texts("--cp-comm-type");
  if (draft.Whole("parallel.cp", 1) > 1 && !exchange.empty()) {
    const std::string& type = exchange.front();
    if (exchange.size() > 1 || type == "a2a+p2p") {
      r->Refuse("--cp-comm-type",
                "one exchange for all layers is modelled: p2p, all_gather or a2a");
    } else {
      draft.SetText("framework_options.cp_exchange", type == "p2p"   ? "ring"
                                                     : type == "a2a" ? "all-to-all"
                                                                     : "all-gather");
    }
  }
}

void ReadGraphs(Reading* r) {
  Draft& draft = r->draft();
  std::string impl = r->Text("--cuda-graph-impl");
  if (r->On("--enable-cuda-graph")) impl = "local";
  if (r->On("--external-cuda-graph")) impl = "transformer_engine";
  std::vector<std::string> scope = r->Texts("--cuda-graph-modules");
  if (scope.empty()) scope = r->Texts("--cuda-graph-scope");
  r->Find("--cuda-graph-scope");
  if (impl == "full_iteration") scope = {"full_iteration"};
  if (impl.empty() || impl == "none") return;
  if (scope.size() == 1 && scope[0] == "full_iteration") {
    draft.Set("framework_options.cuda_graphs", std::string("iteration"));
    return;
  }
  draft.Set("framework_options.cuda_graphs", std::string("layers"));
  if (scope.empty() || scope[0] == "full") return;
  draft.Set("framework_options.cuda_graph_scope", fmt::format("{}", fmt::join(scope, "+")));
}

void ReadDropout(Reading* r) {
  const double hidden = r->Real("--hidden-dropout", 0.1);
  const double attention = r->Real("--attention-dropout", 0.1);
  const double dropout = std::max(hidden, attention);
  r->draft().Set("model.dropout", fmt::format("{}", dropout));
}

// What only the training script's name says.
void ReadProgram(const std::string& program, Reading* r) {
  if (program.find("bert") != std::string::npos) r->draft().Set("model.encoder", true);
  for (const char* other : {"t5", "retro", "ict", "vision", "vlm", "mimo"}) {
    if (program.find(fmt::format("_{}", other)) == std::string::npos) continue;
    r->Problem(
        fmt::format("{}: {} trains a model that is not modelled here (valid: GPT, BERT and "
                    "hybrids with Mamba)",
                    r->file(), Printable(program, 60)));
  }
}

// Its YAML: Megatron's own (names with underscores, nested or not), or MODEL_ARGS with names as on
// the command line.
Status AddYaml(const formats::Document& document, Reading* r) {
  const Table& table = MegatronTable();
  const formats::Node* arguments = document.root.Find("MODEL_ARGS");
  for (const Leaf& leaf : Leaves(arguments != nullptr ? *arguments : document.root)) {
    const std::string name = leaf.path.substr(leaf.path.rfind('.') + 1);
    const Row* row = table.Find(name);
    if (row == nullptr) row = table.FindField(name);
    if (!AddLeaf(document, leaf, row, r)) r->AddUnknown(name, document.Where(*leaf.node), {&table});
  }
  return {};
}

}  // namespace

const Table& MegatronTable() {
  static constexpr std::string_view kLines[] = {
#include "orrery_data_recipes_megatron.inc"
  };
  static const Table table(kLines);
  return table;
}

void ReadMegatronRules(Reading* r, const Launch& launch, const Script* script) {
  Draft& draft = r->draft();
  draft.SetText("framework", "megatron");
  ReadFeedForward(r);
  ReadAttentionShape(r);
  ReadPositions(r);
  ReadHybrid(r);
  ReadExperts(r);
  ReadDropout(r);
  const bool named = !r->options().model.empty();
  if (!named) ReadVocabulary(r);
  ReadMegatronStages(r);
  ReadPrecision(r);
  ReadRecompute(r);
  ReadSharding(r);
  ReadKernels(r, script);
  ReadGraphs(r);
  r->SetSize(launch);
  const auto batch = r->Whole("--global-batch-size");
  if (const auto instances = r->Whole("--num-distributed-optimizer-instances");
      instances && *instances > 1) {
    const std::int64_t replicas = draft.Whole("parallel.dp", 0) * draft.Whole("parallel.cp", 1);
    if (replicas > 0 && replicas % *instances == 0) {
      draft.Set("parallel.shard_group", replicas / *instances);
      r->SayNodes(0);
    } else {
      r->Refuse("--num-distributed-optimizer-instances",
                fmt::format("{} replicas are not split into {} instances", replicas, *instances));
    }
  }
  if (batch) {
    draft.Set("training.global_batch", *batch);
  } else if (draft.Has("parallel.dp")) {
    draft.Set("training.global_batch",
              draft.Whole("training.micro_batch", 1) * draft.Whole("parallel.dp", 1));
    draft.Assume("training.global_batch: one micro-batch a replica, Megatron's default");
  }
  if (!r->IsSet("training.sample_read")) draft.Drop("training.data_workers");
  constexpr std::pair<const char*, const char*> kNeeded[] = {
      {"model.layers", "--num-layers"},
      {"model.hidden", "--hidden-size"},
      {"model.heads", "--num-attention-heads"},
      {"training.seq_len", "--seq-length"},
      {"training.micro_batch", "--micro-batch-size"}};
  if (named) {  // its shapes are not the recipe's to say
    draft.DropSection("model");
    ReadModel("hub", "", "", "--model", r);
  }
  for (const auto& [key, argument] : kNeeded) {
    if (named && std::string_view(key).starts_with("model.")) continue;
    if (!draft.Has(key) && !r->Has(argument) && !r->IsSet(key))
      r->Missing(fmt::format("{} ({}): give --set {}=N", argument, key, key));
  }
}

bool IsMegatron(std::string_view text, const std::string& path) {
  if (path.ends_with(".json") || path.ends_with(".toml")) return false;
  int known = 0;
  for (const std::string_view sign :
       {"num-layers", "hidden-size", "num-attention-heads", "tensor-model-parallel-size",
        "micro-batch-size", "seq-length"}) {
    std::string field(sign);
    std::ranges::replace(field, '-', '_');
    known += text.find("--" + std::string(sign)) != std::string_view::npos ? 1 : 0;
    known += text.find("\n" + field + ":") != std::string_view::npos ||
                     text.find("  " + field + ":") != std::string_view::npos
                 ? 1
                 : 0;
  }
  return known >= 3;
}

Result<Imported> ReadMegatronScript(const std::vector<File>& files, const Options& options,
                                    const MegatronFork& fork) {
  const File& file = files.front();
  Tables tables = fork.tables;
  if (fork.add_files != nullptr) tables.push_back(&DeepSpeedTable());
  Reading reading(tables, options, file.path);
  ORRERY_ASSIGN_OR_RETURN(const Script script, ReadScript(file.text, file.path, options.variables));
  ORRERY_ASSIGN_OR_RETURN(const CommandLine line, FindTraining(script, fork.tables, file.path));
  AddWords(line.words, fork.tables, &reading);
  if (fork.add_files != nullptr) {
    ORRERY_RETURN_IF_ERROR(fork.add_files(script, std::span(files).subspan(1), &reading));
  }
  reading.Translate();
  for (const std::string& note : script.notes) {
    reading.draft().Assume(fmt::format("{} {}", file.path, note));
  }
  ReadProgram(line.program, &reading);
  if (fork.before != nullptr) fork.before(&reading);
  ReadMegatronRules(&reading, line.launch, &script);
  if (fork.after != nullptr) fork.after(&reading);
  return reading.Finish(std::string(fork.name));
}

Result<Imported> ReadMegatron(const std::vector<File>& files, const Options& options) {
  if (files.size() != 1) {
    return InvalidInput("Megatron's arguments are one file; {} and {} are given", files[0].path,
                        files[1].path);
  }
  const File& file = files.front();
  const bool yaml = file.path.ends_with(".yaml") || file.path.ends_with(".yml");
  if (!yaml) {
    return ReadMegatronScript(files, options, {.name = "megatron", .tables = {&MegatronTable()}});
  }
  Reading reading({&MegatronTable()}, options, file.path);
  ORRERY_ASSIGN_OR_RETURN(const formats::Document document,
                          formats::ParseYaml(file.text, file.path));
  ORRERY_RETURN_IF_ERROR(AddYaml(document, &reading));
  reading.Translate();
  ReadMegatronRules(&reading, {}, nullptr);
  return reading.Finish("megatron");
}

}  // namespace orrery::recipes
