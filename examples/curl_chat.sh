# A question to a running server, by curl.

curl -s $OPENAI_BASE_URL/chat/completions -H 'Content-Type: application/json' -d '{
  "model": "smollm2", "temperature": 0, "max_tokens": 16,
  "messages": [{"role": "user", "content": "What is the capital of France?"}]
}'
