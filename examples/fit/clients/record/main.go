// Command record runs a program that sends requests, cuts the first try of each and answers the second, and writes what arrived, byte for byte.
// clients/README.md says how it is used.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

func main() {
	out := flag.String("out", "testdata", "folder of the recordings")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		slog.Error("the recording has failed", "error", err)
		os.Exit(1)
	}
}

func run(out string, program []string) error {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	r := &recorder{out: out, tries: map[string]int{}}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	cmd := exec.CommandContext(context.Background(), program[0], program[1:]...) //nolint:gosec // which one is said at the command line
	cmd.Env = append(os.Environ(), "URL=http://"+listener.Addr().String())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// recorder counts the tries of each path.
type recorder struct {
	out   string
	mu    sync.Mutex
	tries map[string]int
}

func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	var raw bytes.Buffer
	in := bufio.NewReader(io.TeeReader(conn, &raw))
	for {
		raw.Reset()
		if again, err := r.one(conn, in, &raw); err != nil {
			slog.Error("a request was not recorded", "error", err)
			return
		} else if !again {
			return
		}
	}
}

func (r *recorder) one(conn net.Conn, in *bufio.Reader, raw *bytes.Buffer) (again bool, _ error) {
	req, err := http.ReadRequest(in)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if req.Header.Get("Expect") != "" {
		if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false, err
		}
	}
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return false, err
	}
	r.mu.Lock()
	r.tries[req.URL.Path]++
	try := r.tries[req.URL.Path]
	r.mu.Unlock()
	name := filepath.Join(r.out, fmt.Sprintf("%s.%d.http", filepath.Base(req.URL.Path), try))
	if err := os.WriteFile(name, raw.Bytes(), 0o644); err != nil { //nolint:gosec // a recording is for all to read
		return false, err
	}
	if try == 1 {
		return false, nil // cut
	}
	_, err = io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"id\": 1}")
	return true, err
}
