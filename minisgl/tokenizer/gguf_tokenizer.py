"""Builds a tokenizer from a GGUF file's metadata (`tokenizer.ggml.*`) in a fraction of a second.

Two kinds: "gpt2", byte-level BPE whose merges are in the file, and "llama", sentencepiece BPE whose merges follow
from the scores. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from minisgl.utils.math import num_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_NAMES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # ours, and the file's
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # token types of llama.cpp

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# GPT-2's, behind a cut before and after every digit.
_DIGITS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _by_case(suffix: str, numbers: str) -> str:
    """Words are cut where lower case turns to upper."""
    words = (_UPPER + "*" + _LOWER + "+", _UPPER + "+" + _LOWER + "*")
    return "|".join([*(rf"[^\r\n\p{{L}}\p{{N}}]?{word}{suffix}" for word in words), numbers, _PUNCTUATION])


_GPT4O = _by_case("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}")
_TEKKEN = _by_case("", r"\p{N}")
_SEED_CODER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# DeepSeek's cut the pieces of one pattern by the next. Letters with case, as of an older Unicode, are a list of theirs.
_CASED = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1"
    " 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A"
    " 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4"
    " 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128"
    " 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D"
    " A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F"
    " 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)


def _ranges(text: str) -> str:
    """The inside of a character class, of ranges of code points in hexadecimal."""
    return "".join("-".join(chr(int(end, 16)) for end in part.split("-")) for part in text.split())


_HAN_AND_HANGUL = f"[{_ranges('4E00-9FA5 800-4E00 AC00-D7FF')}]+"
_DEEPSEEK_LLM = (
    *(r"[\r\n]", rf"\s?[{_ranges(_CASED)}]+"),
    rf"\s?[!-/:-~{_ranges('FF01-FF0F FF1A-FF5E 2018-201F 3000-3002')}]+",
    *(r"\s+$", _HAN_AND_HANGUL, r"\p{N}"),
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_AND_HANGUL, r"\p{N}")
_DEEPSEEK_V3 = (
    *(r"\p{N}{1,3}", f"[{_ranges('4E00-9FA5 3040-309F 30A0-30FF')}]+"),
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
# How text is cut before merging, by `tokenizer.ggml.pre`: a pattern, or several one after the other. None is GPT-2's
# pattern, which `tokenizers` has built in. Where llama.cpp and a model's own tokenizer.json differ, the latter holds:
# for "smollm" llama.cpp parts digits first ("\n\n1" differs, for one), for "deepseek-llm" it leaves them together.
_SPLITS: dict[str, str | tuple[str, ...] | None] = {
    "default": None,
    "gpt-2": None,
    "mellum": None,
    "a.x-4.0": None,
    "trillion": None,
    "olmo": None,
    "phi-2": None,
    "smollm": None,
    "refact": _DIGITS,  # Granite
    "starcoder": _DIGITS,
    "minerva-7b": _DIGITS,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "megrez": _QWEN2,
    "seed-coder": _SEED_CODER,
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-v3": _DEEPSEEK_V3,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "midm-2.0": _LLAMA3,
    "pixtral": _LLAMA3,
    "dbrx": _LLAMA3,  # OLMo 2, Phi-4
    "smaug-bpe": _LLAMA3,  # SmolLM3
    "gpt-4o": _GPT4O,  # Phi-4-mini, GPT-OSS
    "tekken": _TEKKEN,  # newer Mistral
}
_COMPOSED = frozenset(("qwen2", "deepseek-r1-qwen"))  # whose characters are composed first (NFC)
# Whose older files do not say that BOS is added, and whose vocabulary has whole words that its merges cannot build.
_ADD_BOS = frozenset(("llama-bpe", "llama3", "llama-v3", "tekken", "pixtral"))
_WHOLE_WORDS = _ADD_BOS | {"falcon3", "midm-2.0"}


@dataclass(frozen=True, eq=False)
class GGUFTokenizer:
    """What `Tokenizer` reads of a Hugging Face object, under the same names.

    special_tokens_map: such as {"eos_token": "</s>"}. chat_template: one, several by name, or none. longest_token: in
    bytes.
    """

    backend_tokenizer: Tokenizer
    special_tokens_map: dict[str, str]
    chat_template: str | dict[str, str] | None
    longest_token: int

    def to_hf(self) -> PreTrainedTokenizerFast:
        """One that encodes the same, with a copy of the vocabulary."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(
            tokenizer_object=self.backend_tokenizer,
            chat_template=self.chat_template,
            clean_up_tokenization_spaces=False,
            **self.special_tokens_map,
        )


class _Metadata:
    """The `tokenizer.ggml.*` keys of one file, and the choices that depend on several of them."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.kind: str | None = self.get("model")
        self.split: str = self.get("pre", "default")
        if self.kind not in ("gpt2", "llama"):
            raise ValueError(f"tokenizer.ggml.model={self.kind!r} is not supported; supported: 'gpt2', 'llama'")
        if self.kind == "gpt2" and self.split not in _SPLITS:
            raise ValueError(f"tokenizer.ggml.pre={self.split!r} is not supported; supported: {', '.join(_SPLITS)}")
        self.tokens: list[str] = self.need("tokens")
        self.types: list[int] = self.get("token_type") or [_NORMAL] * len(self.tokens)
        for key, values in (("token_type", self.types), ("scores", self.get("scores", self.tokens))):
            if len(values) != len(self.tokens):
                raise ValueError(f"tokenizer.ggml.{key} has {len(values)} entries for {len(self.tokens)} tokens")

    def get(self, key: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{key}", default)

    def need(self, key: str) -> list[Any]:
        values = self.get(key)
        if not isinstance(values, list):
            raise ValueError(f"the GGUF file has no tokenizer.ggml.{key}, which model {self.kind!r} needs")
        return values

    @property
    def has_whole_words(self) -> bool:
        return self.kind == "gpt2" and self.split in _WHOLE_WORDS

    @property
    def add_bos(self) -> bool:
        """Files older than the key leave it out: Llama and Mistral models then add BOS."""
        return bool(self.get("add_bos_token", self.kind == "llama" or self.split in _ADD_BOS))

    def eats_space_behind(self, token: str) -> bool:
        """Phi-3's tokens do, but for those of a text's ends; no key says so."""
        is_phi3 = self._metadata.get("general.architecture") == "phi3" and self.kind == "llama"
        return is_phi3 and token not in ("<unk>", "<s>", "<|endoftext|>")

    def token(self, name: str) -> str | None:
        """The text of `bos`, `eos`, `unknown` or `padding`. Padding outside the vocabulary is how a file says none."""
        token_id: int | None = self.get(f"{name}_token_id")
        if token_id is None:
            return None
        if 0 <= token_id < len(self.tokens):
            return self.tokens[token_id]
        if name == "padding":
            return None
        raise ValueError(f"tokenizer.ggml.{name}_token_id={token_id} is outside the {len(self.tokens)} tokens")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> GGUFTokenizer:
    """The tokenizer that a GGUF file describes, its special tokens and chat template included.

    Raises ValueError naming the key and the value that is not supported or cannot be.
    """
    ggml = _Metadata(metadata)
    backend = _byte_level_bpe(ggml) if ggml.kind == "gpt2" else _sentencepiece_bpe(ggml)
    backend.add_special_tokens(_added_tokens(ggml, _CONTROL))
    backend.add_tokens(_added_tokens(ggml, _USER_DEFINED))
    named = {f"{short}_token": token for short, name in _NAMES.items() if (token := ggml.token(name)) is not None}
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    backend.add_special_tokens([AddedToken(token, special=True) for token in named.values() if token not in added])
    if affixes := _affixes(ggml):
        backend.post_processor = affixes
    size = len if ggml.kind == "gpt2" else num_bytes  # in GPT-2's spelling each character is a byte
    return GGUFTokenizer(backend, named, _chat_template(metadata), max(map(size, ggml.tokens), default=1))


def _chat_template(metadata: Mapping[str, Any]) -> str | dict[str, str] | None:
    """The file's only template, or several by name, of which transformers takes "tool_use" where there are tools."""
    template: str | None = metadata.get("tokenizer.chat_template")
    others = metadata.get("tokenizer.chat_templates", ())
    named = {name: metadata[key] for name in others if (key := f"tokenizer.chat_template.{name}") in metadata}
    if not named:
        return template
    return ({"default": template} if template is not None else {}) | named


def _byte_level_bpe(ggml: _Metadata) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(ggml.tokens)}
    merges = [_pair(merge) for merge in ggml.need("merges")]
    try:
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=ggml.has_whole_words)
    except Exception:  # a plain one: a merge of texts that are no tokens can never happen, but is refused
        merges = [(a, b) for a, b in merges if a in vocab and b in vocab and a + b in vocab]
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=ggml.has_whole_words)
    backend = Tokenizer(model)
    patterns = _SPLITS[ggml.split]
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if patterns:
        in_turn = (patterns,) if isinstance(patterns, str) else patterns
        cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in in_turn]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, to_bytes])
    if ggml.split in _COMPOSED:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _sentencepiece_bpe(ggml: _Metadata) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(ggml.tokens)}
    unk = ggml.token("unknown")
    model = models.BPE(vocab=vocab, merges=_merges(ggml), unk_token=unk, fuse_unk=True, byte_fallback=True)
    backend = Tokenizer(model)
    spaces = normalizers.Replace(" ", "▁")
    unspaced = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if ggml.get("add_space_prefix", True):
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
        backend.decoder = decoders.Sequence([*unspaced, decoders.Strip(" ", 1, 0)])
    else:
        backend.normalizer = spaces
        backend.decoder = decoders.Sequence(unspaced)
    return backend


def _merges(ggml: _Metadata) -> list[tuple[str, str]]:
    """Sentencepiece joins the neighbours whose union scores best: that order, as a list of pairs."""
    normal = {token for token, kind in zip(ggml.tokens, ggml.types, strict=True) if kind == _NORMAL}
    scored = zip(ggml.need("scores"), ggml.tokens, strict=True)
    ranked = sorted(((score, token) for score, token in scored if token in normal), key=lambda pair: -pair[0])
    return [pair for _, token in ranked for pair in _cuts(token, normal)]


def _cuts(token: str, normal: set[str]) -> Iterator[tuple[str, str]]:
    for i in range(len(token) - 1, 0, -1):
        if token[:i] in normal and token[i:] in normal:
            yield token[:i], token[i:]


def _added_tokens(ggml: _Metadata, wanted: int) -> list[AddedToken]:
    """The tokens of one type, which are found whole in any text, before merging."""
    pairs = zip(ggml.tokens, ggml.types, strict=True)
    tokens = [token for token, kind in pairs if kind == wanted]
    return [
        AddedToken(token, normalized=False, special=wanted == _CONTROL, rstrip=ggml.eats_space_behind(token))
        for token in tokens
    ]


def _affixes(ggml: _Metadata) -> processors.TemplateProcessing | None:
    """Puts BOS before and EOS after a text, as the file says."""
    bos = ggml.token("bos") if ggml.add_bos else None
    eos = ggml.token("eos") if ggml.get("add_eos_token", False) else None
    if bos is None and eos is None:
        return None
    single = [*([bos] if bos else []), "$A", *([eos] if eos else [])]
    special = [(token, ggml.tokens.index(token)) for token in (bos, eos) if token]
    return processors.TemplateProcessing(single=single, special_tokens=special)
