"""vLLM servers, and the LMCache servers beside them: started, watched and stopped by kvbench, or running already."""
