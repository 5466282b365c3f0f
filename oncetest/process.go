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

// maxConns is what one service may open.
const maxConns = 20

// process is one start of the service: all that it loses when it dies.
type process struct {
	plan   *plan
	name   string // of its sessions
	pool   *bun.DB
	client *client
	died   chan struct{} // closed by a crash

	mu    sync.Mutex
	point Point // where it died
	wires map[*wire]struct{}
}

// newProcess opens the pool of a start, which is that of config.OpenDB with RefusePool but for limits that no test needs. name is that of its
// sessions, and of no others on the server.
func newProcess(dsn, name string, plan *plan, b *broker) (*process, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the address of the database: %w", err)
	}
	p := &process{plan: plan, name: name, died: make(chan struct{}), wires: map[*wire]struct{}{}}
	p.client = &client{broker: b, process: p}
	cfg.RuntimeParams["application_name"] = name
	cfg.AfterNetConnect = p.connected
	cfg.ChannelBinding = "disable" // pgx knows the certificate only where nothing is wrapped around TLS
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

// connected wraps a connection, after the handshake of TLS if there is one.
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

// reach is called when the process comes to a point. The process dies if a crash is planned there. reach reports whether the process is
// dead.
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
		_ = w.Conn.Close() // wakes what waits for an answer
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

// dead is the error of what the process attempts after its death. The caller holds mu, or has seen died.
func (p *process) dead() error {
	return fmt.Errorf("oncetest: this process of the service died at CrashAt(%q): call Drain, which starts the service anew", p.point)
}

// endSessions ends what the server still runs for the process, and waits for the end of it.
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

// mute lets nothing through from a dead process: its error messages are about the crash that the test wanted.
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
