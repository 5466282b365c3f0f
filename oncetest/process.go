package oncetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// maxConns is the size of a service's pool.
const maxConns = 20

// process is one run of the service, with everything that it loses when it dies.
type process struct {
	plan   *plan
	name   string // application_name of its sessions
	pool   *bun.DB
	client *client
	died   chan struct{} // closed by a crash

	mu    sync.Mutex
	point Point // the place where it died
	wires map[*wire]struct{}
}

// newProcess opens the pool of a process. It is that of config.OpenDB with RefusePool, without limits that tests do not
// need. name identifies its sessions, and no others on the server.
func newProcess(dsn, name string, plan *plan, b *broker) (*process, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the address of the database: %w", err)
	}
	p := &process{plan: plan, name: name, died: make(chan struct{}), wires: map[*wire]struct{}{}}
	p.client = &client{broker: b, process: p}
	cfg.RuntimeParams["application_name"] = name
	cfg.AfterNetConnect = p.connected
	cfg.Tracer = tracer{p}
	cfg.ChannelBinding = "disable" // pgx can bind the channel only if nothing wraps the connection
	cfg.AfterConnect = func(_ context.Context, c *pgconn.PgConn) error {
		if w, ok := c.Conn().(*wire); ok {
			w.conn.Store(c)
		}
		return nil
	}
	pool := pgsql.OpenGuarded(pgsql.NewConnector(*cfg))
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns)
	p.pool = bun.NewDB(pool, pgdialect.New())
	return p, nil
}

// connected wraps a connection, after the TLS handshake if there is one.
func (p *process) connected(_ context.Context, _ *pgconn.Config, c net.Conn) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.point != "" {
		return c, p.dead()
	}
	w := &wire{Conn: c, process: p}
	p.wires[w] = struct{}{}
	return w, nil
}

// reach is called when the process comes to a point. If a crash is planned there, the process dies. reach
// reports whether it is dead.
func (p *process) reach(at Point) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.point != "":
		return true
	case !p.plan.take(at):
		return false
	}
	p.point = at
	close(p.died)
	for w := range p.wires {
		_ = w.Conn.Close() // wakes up readers that wait for an answer
	}
	p.client.disconnect()
	return true
}

func (p *process) isDead() bool {
	select {
	case <-p.died:
		return true
	default:
		return false
	}
}

// dead returns the error for everything that the process tries after its death. The caller holds mu, or has
// seen died closed.
func (p *process) dead() error {
	return fmt.Errorf("oncetest: this process of the service died at CrashAt(%q): call Drain, which starts the service anew", p.point)
}

// endSessions ends the sessions of the process on the server, and waits until they have ended.
const endSessions = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = ?`

func (p *process) endSessions(ctx context.Context, db *bun.DB) error {
	for {
		var left int
		if err := db.NewRaw(endSessions, p.name).Scan(ctx, &left); err != nil {
			return fmt.Errorf("end the sessions of the dead process: %w", err)
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return fmt.Errorf("end the sessions of the dead process: %d are left: %w", left, context.Cause(ctx))
		}
	}
}

// close ends the process cleanly.
func (p *process) close() error { return errors.Join(p.pool.Close(), p.client.Close()) }

// mute drops the log lines of a dead process, because its errors come only from the crash that the test wanted.
type mute struct {
	io.Writer

	process *process
}

func (m mute) Write(b []byte) (int, error) {
	if m.process.isDead() {
		return len(b), nil
	}
	return m.Writer.Write(b)
}
