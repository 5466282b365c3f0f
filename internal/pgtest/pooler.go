package pgtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// poolerServers is the default number of a pooler's connections to the server.
const poolerServers = 8

// pooler is a transaction-mode pooler, like PgBouncer. A client has a connection to the server for one transaction, and
// another one for the next if there are several. Prepared statements, locks and settings of a session stay with the
// server's connection, and its next client finds them there.
type pooler struct {
	t        testing.TB
	server   *pgconn.Config
	listener net.Listener
	tasks    sync.WaitGroup
	// servers are the unused connections to the server, the longest unused first. nil stands for a connection that is opened when it is needed.
	servers chan *poolerServer

	mu      sync.Mutex
	closed  bool
	clients map[uint32]*poolerClient
}

// Pooled starts a transaction-mode pooler in front of the server until the test ends, and returns the same schema
// through it. As with all such poolers, statements cannot be prepared, and session locks do not belong to a client.
func (db *DB) Pooled(t testing.TB) *DB {
	t.Helper()
	return db.PooledBy(t, poolerServers)
}

// PooledBy is Pooled with a given number of connections to the server. With one, all transactions run in the same
// session, one after the other.
func (db *DB) PooledBy(t testing.TB, servers int) *DB {
	t.Helper()
	cfg, err := pgconn.ParseConfig(db.DSN)
	require.NoError(t, err)
	delete(cfg.RuntimeParams, "default_query_exec_mode") // a setting of pgx that the server does not know
	p := &pooler{t: t, server: cfg, servers: make(chan *poolerServer, servers), clients: map[uint32]*poolerClient{}}
	for range servers {
		p.servers <- nil
	}
	p.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p.tasks.Go(p.listen)
	t.Cleanup(p.stop)

	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	u.Host, u.RawQuery = p.listener.Addr().String(), "sslmode=disable&default_query_exec_mode=exec"
	pooled := &DB{Schema: db.Schema, DSN: u.String()}
	pooled.DB = pooled.Another(t)
	return pooled
}

func (p *pooler) listen() {
	for id := uint32(1); ; id++ {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		c := &poolerClient{p: p, id: id, conn: conn}
		p.mu.Lock()
		p.clients[id] = c
		if p.closed {
			_ = conn.Close()
		}
		p.mu.Unlock()
		p.tasks.Go(func() {
			c.serve()
			_ = conn.Close()
			p.mu.Lock()
			delete(p.clients, id)
			p.mu.Unlock()
		})
	}
}

func (p *pooler) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.clients {
		_ = c.conn.Close()
	}
	p.mu.Unlock()
	for range cap(p.servers) {
		if s := <-p.servers; s != nil {
			_ = s.conn.Close()
		}
	}
	p.tasks.Wait()
}

// take waits for an unused connection to the server.
func (p *pooler) take() (*poolerServer, error) {
	s := <-p.servers
	if s != nil && s.silent() {
		return s, nil
	}
	if s != nil {
		_ = s.conn.Close() // the server has ended it meanwhile
	}
	// Reading from the connection itself would be wrong: after a slow write, pgx may still read from it in
	// the background.
	var from io.Reader
	cfg := p.server.Copy()
	cfg.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		from = r
		return pgproto3.NewFrontend(r, w)
	}
	opened, err := pgconn.ConnectConfig(context.Background(), cfg)
	if err != nil {
		p.servers <- nil
		return nil, err
	}
	hijacked, err := opened.Hijack()
	if err != nil {
		p.servers <- nil
		return nil, err
	}
	s = &poolerServer{conn: hijacked.Conn, cancel: pgproto3.CancelRequest{ProcessID: hijacked.PID, SecretKey: hijacked.SecretKey}}
	s.messages = p.read(from)
	return s, nil
}

// read reads messages until the connection is closed.
func (p *pooler) read(conn io.Reader) <-chan []byte {
	messages := make(chan []byte, 4096) // without room both sides could wait for the other to read
	p.tasks.Go(func() {
		defer close(messages)
		reader := bufio.NewReader(conn)
		for {
			head, err := reader.Peek(5)
			if err != nil {
				return
			}
			message := make([]byte, 1+binary.BigEndian.Uint32(head[1:]))
			if _, err := io.ReadFull(reader, message); err != nil {
				return
			}
			messages <- message
		}
	})
	return messages
}

// poolerServer is one connection to the server.
type poolerServer struct {
	conn     net.Conn
	cancel   pgproto3.CancelRequest
	messages <-chan []byte
}

// silent reports whether the server has sent nothing since the last transaction. If it has, it has ended the session.
func (s *poolerServer) silent() bool {
	select {
	case <-s.messages:
		return false
	default:
		return true
	}
}

// poolerClient is the connection of a client.
type poolerClient struct {
	p    *pooler
	id   uint32
	conn net.Conn

	mu     sync.Mutex
	server *poolerServer // the connection of the present transaction
}

func (c *poolerClient) serve() {
	if !c.greet() {
		return
	}
	messages := c.p.read(c.conn)
	defer func() {
		_ = c.conn.Close()
		for range messages { // until the reader has ended
		}
	}()
	for first := range messages {
		if first[0] == 'X' {
			return
		}
		s, err := c.p.take()
		if err != nil {
			c.fail("08006", err.Error())
			return
		}
		c.with(s)
		whole := c.transact(s, first, messages)
		c.with(nil)
		if !whole { // a side has closed its connection, which ended the transaction
			_ = s.conn.Close()
			for range s.messages { // until the reader has ended
			}
			s = nil
		}
		c.p.servers <- s
		if !whole {
			return
		}
	}
}

func (c *poolerClient) with(s *poolerServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = s
}

// transact passes messages on until the transaction has ended. It returns false if one of the connections was closed.
func (c *poolerClient) transact(s *poolerServer, message []byte, messages <-chan []byte) bool {
	syncs, synced := 0, false // number of messages without an answer, and whether a Sync was the last of them
	ask := func(message []byte) bool {
		if synced = message[0] == 'Q' || message[0] == 'S'; synced {
			syncs++
		}
		_, err := s.conn.Write(message)
		return err == nil && message[0] != 'X'
	}
	if !ask(message) {
		return false
	}
	for {
		select {
		case message, ok := <-messages:
			if !ok || !ask(message) {
				return false
			}
		case answer, ok := <-s.messages:
			if !ok {
				c.fail("08P01", "server conn crashed?")
				return false
			}
			if _, err := c.conn.Write(answer); err != nil {
				return false
			}
			if answer[0] == 'Z' {
				syncs--
			}
			if answer[0] == 'Z' && answer[5] == 'I' && syncs == 0 && synced {
				return true
			}
		}
	}
}

// greet handles the messages before the first statement. It returns false if the client will send none.
func (c *poolerClient) greet() bool {
	backend := pgproto3.NewBackend(c.conn, c.conn)
	for {
		message, err := backend.ReceiveStartupMessage()
		if err != nil {
			return false
		}
		switch m := message.(type) {
		case *pgproto3.CancelRequest:
			c.p.cancel(m)
			return false
		case *pgproto3.StartupMessage:
			return c.welcome(backend, m)
		default: // a request for TLS, which is refused
			if _, err := c.conn.Write([]byte{'N'}); err != nil {
				return false
			}
		}
	}
}

func (c *poolerClient) welcome(backend *pgproto3.Backend, m *pgproto3.StartupMessage) bool {
	known := []string{"user", "database", "client_encoding", "datestyle", "timezone", "standard_conforming_strings", "application_name"}
	for name := range m.Parameters {
		if !slices.Contains(known, strings.ToLower(name)) {
			c.fail("08P01", "unsupported startup parameter: "+name)
			return false
		}
	}
	backend.Send(&pgproto3.AuthenticationCleartextPassword{})
	if backend.Flush() != nil || backend.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return false
	}
	answer, err := backend.Receive()
	password, ok := answer.(*pgproto3.PasswordMessage)
	if err != nil || !ok || password.Password != c.p.server.Password {
		c.fail("28P01", "password authentication failed")
		return false
	}
	backend.Send(&pgproto3.AuthenticationOk{})
	for name, value := range map[string]string{
		"client_encoding": "UTF8", "standard_conforming_strings": "on", "server_version": "17.0 (pooler)", "integer_datetimes": "on",
	} {
		backend.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	backend.Send(&pgproto3.BackendKeyData{ProcessID: c.id, SecretKey: c.secret()})
	backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	return backend.Flush() == nil
}

func (c *poolerClient) secret() []byte { return binary.BigEndian.AppendUint32(nil, ^c.id) }

func (c *poolerClient) fail(code, text string) {
	message, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: code, Message: text}).Encode(nil)
	if err == nil {
		_, _ = c.conn.Write(message)
	}
}

// cancel passes a request to cancel a query on to the server that works for the client.
func (p *pooler) cancel(m *pgproto3.CancelRequest) {
	p.mu.Lock()
	c := p.clients[m.ProcessID]
	p.mu.Unlock()
	if c == nil || string(m.SecretKey) != string(c.secret()) {
		return
	}
	c.mu.Lock() // until the request was sent; otherwise it could cancel another client's statement
	defer c.mu.Unlock()
	if c.server == nil {
		return
	}
	if err := p.send(c.server.cancel); err != nil {
		p.t.Logf("pgtest: pooler: cancel: %v", err)
	}
}

func (p *pooler) send(m pgproto3.CancelRequest) error {
	network, address := pgconn.NetworkAddress(p.server.Host, p.server.Port)
	conn, err := new(net.Dialer).DialContext(context.Background(), network, address)
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer conn.Close()
	message, err := m.Encode(nil)
	if err == nil {
		_, err = conn.Write(message)
	}
	if err == nil {
		_, _ = conn.Read(make([]byte, 1)) // the server closes the connection when it has cancelled the query
	}
	return err
}
