// The echo server over nbio's WebSocket: it answers in the event loop that read the message, ends when its standard input does,
// and says what it counted. Arguments: the delivery, which TCP decides, and the bytes of an answer or 0 for those of the message.
//
// Settings: IOModNonBlocking, one poller and one processor for one core, messages handled where they are read (no pool of
// goroutines), no compression, TCP_NODELAY.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lesismal/nbio/logging"
	"github.com/lesismal/nbio/nbhttp"
	"github.com/lesismal/nbio/nbhttp/websocket"
)

var received, echoed, refused atomic.Uint64

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

func run(bytes int) error {
	upgrader := websocket.NewUpgrader()
	upgrader.KeepaliveTime = 10 * time.Minute
	upgrader.OnMessage(func(conn *websocket.Conn, kind websocket.MessageType, message []byte) {
		received.Add(1)
		if conn.WriteMessage(kind, answerTo(message, bytes)) == nil {
			echoed.Add(1)
		} else {
			refused.Add(1)
		}
	})
	mux := &http.ServeMux{}
	mux.HandleFunc("/ws", func(writer http.ResponseWriter, request *http.Request) {
		if _, err := upgrader.Upgrade(writer, request, nil); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
		}
	})
	inline := func(task func()) { task() }
	engine := nbhttp.NewEngine(nbhttp.Config{
		Network:        "tcp",
		Addrs:          []string{"127.0.0.1:0"},
		Handler:        mux,
		IOMod:          nbhttp.IOModNonBlocking,
		NPoller:        1,
		ServerExecutor: inline,
		Listen: func(network, address string) (net.Listener, error) {
			listener, err := net.Listen(network, address)
			if err == nil {
				fmt.Println(listener.Addr())
			}
			return listener, err
		},
	})
	if err := engine.Start(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	counts := map[string]uint64{"received": received.Load(), "echoed": echoed.Load(), "refused": refused.Load()}
	if err := json.NewEncoder(os.Stdout).Encode(counts); err != nil {
		return err
	}
	return err
}

func main() {
	logging.SetLevel(logging.LevelError)
	runtime.GOMAXPROCS(1)
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "error: the nbio server takes a delivery and the bytes of an answer")
		os.Exit(2)
	}
	bytes, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = run(bytes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
