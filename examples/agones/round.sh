#!/bin/sh
# Plays one round with the SDK server that Agones puts into every pod, in its local mode. This proves that the real interface accepts
# the calls; the tests of the example check their order. The server exits with an error when a call for its state is refused.
#
# It needs `sdk-server` on the PATH:
#   git clone --depth 1 https://github.com/googleforgames/agones && cd agones && go build -mod=vendor -o ~/bin/ ./cmd/sdk-server
set -eu
cargo build --example agones
sdk-server --local --address=127.0.0.1 --http-port=9358 --grpc-port=9357 &
trap "kill $!" EXIT
AGONES_SDK_HTTP_PORT=9358 timeout 60 cargo run --quiet --example agones -- \
  server 127.0.0.1:7786 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 &
server=$!
timeout 60 cargo run --quiet --example agones -- \
  client 127.0.0.1:7786 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
wait $server
