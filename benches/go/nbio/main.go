// Command nbio is the server that the bench echo measures beside drumfire's: a WebSocket echo on nbio in its non-blocking mode,
// with the settings of nbio's own benchmark, without compression and with TCP_NODELAY. It says where it is, answers every line
// it is told with what it counted, ends with its standard input, and says its counts once more. It measures nothing itself.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/lesismal/nbio/logging"
	"github.com/lesismal/nbio/mempool"
	"github.com/lesismal/nbio/nbhttp"
	"github.com/lesismal/nbio/nbhttp/websocket"
)

// Bytes of a message of nbio's benchmark.
const messageBytes = 1024

// The benchmark of nbio sets both.
const (
	memoryLimitBytes = 2 << 30
	pooledMaxBytes   = 1 << 30
)

// More connections than a bench makes.
const connectionsMax = 20_000

var received, echoed, refused atomic.Uint64

func main() {
	// The standard output belongs to the bench.
	logging.SetLevel(logging.LevelNone)
	debug.SetMemoryLimit(memoryLimitBytes)
	mempool.DefaultMemPool = mempool.New(messageBytes+1024, pooledMaxBytes)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "nbio:", err)
		os.Exit(1)
	}
}

func handler() http.Handler {
	upgrader := websocket.NewUpgrader()
	upgrader.OnMessage(func(c *websocket.Conn, kind websocket.MessageType, data []byte) {
		received.Add(1)
		if err := c.WriteMessage(kind, data); err != nil {
			refused.Add(1)
			return
		}
		echoed.Add(1)
	})
	mux := &http.ServeMux{}
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			fmt.Fprintln(os.Stderr, "nbio:", err)
			return
		}
		if tcp, ok := c.Conn.(interface{ SetNoDelay(bool) error }); ok {
			tcp.SetNoDelay(true)
		}
		c.SetReadDeadline(time.Time{})
	})
	return mux
}

func run() error {
	var address net.Addr
	config := nbhttp.Config{MaxLoad: connectionsMax, ReleaseWebsocketPayload: true}
	config.Network = "tcp"
	config.Addrs = []string{"127.0.0.1:0"}
	config.Handler = handler()
	config.IOMod = nbhttp.IOModNonBlocking
	config.Listen = func(network, at string) (net.Listener, error) {
		listener, err := net.Listen(network, at)
		if err == nil {
			address = listener.Addr()
		}
		return listener, err
	}
	engine := nbhttp.NewEngine(config)
	if err := engine.Start(); err != nil {
		return err
	}
	defer engine.Stop()
	fmt.Println(address)

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		tell()
	}
	tell()
	return lines.Err()
}

func tell() {
	counts := map[string]uint64{"received": received.Load(), "echoed": echoed.Load(), "refused": refused.Load()}
	text, err := json.Marshal(counts)
	if err != nil {
		// Numbers under names can always be written.
		panic(err)
	}
	fmt.Println(string(text))
}
