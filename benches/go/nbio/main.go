// Command nbio is the server that two benches measure beside drumfire's: a WebSocket echo on nbio in its non-blocking mode. It
// says where it is, answers every line it is told with what it counted, ends with its standard input, and says its counts once
// more. It measures nothing itself.
//
// Its arguments are the settings: `benchmark` for those that nbio's own benchmark gives it, or `one-core` and the bytes of an
// answer (0 for those of the message) for one poller and one processor, messages being answered in the event loop that read
// them (no pool of goroutines). Both without compression and with TCP_NODELAY.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
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

// Longer than any round, for connections that say nothing.
const keepAlive = 10 * time.Minute

var received, echoed, refused atomic.Uint64

// What a server is asked to be.
type settings struct {
	config      nbhttp.Config
	answerBytes int
	// Whether a connection may say nothing for ever, instead of for keepAlive.
	isPatient bool
}

func main() {
	// The standard output belongs to the bench.
	logging.SetLevel(logging.LevelNone)
	settings, err := settingsOf(os.Args[1:])
	if err == nil {
		err = run(settings)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nbio:", err)
		os.Exit(1)
	}
}

func settingsOf(args []string) (settings, error) {
	switch {
	case len(args) == 1 && args[0] == "benchmark":
		debug.SetMemoryLimit(memoryLimitBytes)
		mempool.DefaultMemPool = mempool.New(messageBytes+1024, pooledMaxBytes)
		config := nbhttp.Config{MaxLoad: connectionsMax, ReleaseWebsocketPayload: true}
		return settings{config: config, isPatient: true}, nil
	case len(args) == 2 && args[0] == "one-core":
		runtime.GOMAXPROCS(1)
		answerBytes, err := strconv.Atoi(args[1])
		inline := func(task func()) { task() }
		return settings{config: nbhttp.Config{NPoller: 1, ServerExecutor: inline}, answerBytes: answerBytes}, err
	}
	return settings{}, errors.New("the arguments are `benchmark`, or `one-core` and the bytes of an answer")
}

// answerTo is the message itself, or the message over again until the answer is as long as it has to be.
func answerTo(message []byte, bytes int) []byte {
	if bytes == 0 || len(message) == 0 {
		return message
	}
	answer := make([]byte, 0, bytes)
	for len(answer) < bytes {
		answer = append(answer, message[:min(len(message), bytes-len(answer))]...)
	}
	return answer
}

func handler(settings settings) http.Handler {
	upgrader := websocket.NewUpgrader()
	if !settings.isPatient {
		upgrader.KeepaliveTime = keepAlive
	}
	upgrader.OnMessage(func(c *websocket.Conn, kind websocket.MessageType, data []byte) {
		received.Add(1)
		if err := c.WriteMessage(kind, answerTo(data, settings.answerBytes)); err != nil {
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
		if settings.isPatient {
			c.SetReadDeadline(time.Time{})
		}
	})
	return mux
}

func run(settings settings) error {
	var address net.Addr
	config := settings.config
	config.Network = "tcp"
	config.Addrs = []string{"127.0.0.1:0"}
	config.Handler = handler(settings)
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
