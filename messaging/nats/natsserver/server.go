// Package natsserver runs a NATS server with JetStream within a process: for tests, and for the first minutes with oncebox, where nothing but Go is
// installed. It is a whole server, and not a fake.
//
//	server, err := natsserver.Start(&natsserver.Config{Dir: dir})
//	defer server.Stop()
//	broker, err := nats.Connect(ctx, &nats.Config{URL: server.URL()})
//
// Read first: server.go:Start.
package natsserver

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/oncebox/oncebox/internal/configs"
)

// Config configures [Start].
type Config struct {
	// Dir is the directory of the streams. They are there again after a restart with the same directory. Required.
	Dir string
	// Host is the address to listen on. Default: 127.0.0.1.
	Host string
	// Port is the port to listen on. Default: 0, any free port.
	Port int
	// Timeout is how long the server may take to accept connections. Default: 1m.
	Timeout time.Duration
	// Options changes the server's own options, for example to add users. Default: none.
	Options func(*server.Options)
}

// Server is a running server.
type Server struct{ server *server.Server }

// Start starts a server and returns when it accepts connections.
func Start(cfg *Config) (*Server, error) {
	c := configs.Copy(cfg)
	if c.Dir == "" {
		return nil, errors.New("natsserver: Config.Dir is empty: give a directory for the streams")
	}
	options := &server.Options{
		Host: cmp.Or(c.Host, "127.0.0.1"), Port: cmp.Or(c.Port, server.RANDOM_PORT), JetStream: true, StoreDir: c.Dir, NoLog: true, NoSigs: true,
	}
	if c.Options != nil {
		c.Options(options)
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("natsserver: %w", err)
	}
	s.Start()
	running := &Server{s}
	if !s.ReadyForConnections(cmp.Or(c.Timeout, time.Minute)) {
		running.Stop()
		return nil, fmt.Errorf("natsserver: the server does not accept connections on %s:%d: is the port in use, or the directory %s not writable?",
			options.Host, options.Port, c.Dir)
	}
	return running, nil
}

// URL returns the address for clients, nats://host:port.
func (s *Server) URL() string { return s.server.ClientURL() }

// Stop ends the server and returns when it has ended. What it has confirmed is stored.
func (s *Server) Stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}
