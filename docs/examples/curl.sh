SITE=http://127.0.0.1:8000
TOKEN=gh_your-token

ask() {
  curl --silent --show-error --fail-with-body \
    -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" "$@"
}
first_id() { grep -oE '[0-9a-f-]{36}' | head -n 1; }

# A conversation, and a message in it. The answer is written in the background.
conversation=$(ask "$SITE/api/v1/conversations/" -d '{"title": "From the shell"}' | first_id)
turn=$(ask "$SITE/api/v1/conversations/$conversation/turns/" \
  -H "Idempotency-Key: hello-$$-$RANDOM" -d '{"text": "Say hello."}' | first_id)

# Its events as they come; the stream ends with the answer.
ask --no-buffer "$SITE/api/v1/turns/$turn/events/"

# The whole answer.
ask "$SITE/api/v1/turns/$turn/"
