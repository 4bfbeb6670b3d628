"""Models in programs that are not torch, as adapters under the ordinary checks: ONNX Runtime, llama.cpp, a server."""
