package httpmw_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const (
	doomVariable = "HTTPMW_DOOM"
	shortLease   = time.Second
	siegeHeader  = "X-Siege" // the schema: whose process it is that answers
)

// doom is the order to a process: where to serve what, and at which point to kill itself.
type doom struct {
	DSN    string `json:"dsn"`
	Schema string `json:"schema"`
	Lease  bool   `json:"lease"`
	// Pool is how connections are made: "pipelined", as config.OpenDB does, "plain", or "pooled", as config.OpenDB does behind a
	// transaction-mode pooler.
	Pool string `json:"pool"`
	// Point is where it ends when a request comes there for the first time. "": nowhere.
	Point string `json:"point"`
	// Without takes a guard out, to see the test fail: "key" lets every request in under a key of its own, "step" calls outside
	// without a step.
	Without string `json:"without"`
}

// Where a process can be killed, in the order in which a request comes there.
func (d doom) points() []string {
	switch {
	case d.Lease:
		return []string{"received", "claimed", "called", "stepped", "completing", "answering"}
	case d.Pool == "pipelined":
		return []string{"received", "begun", "worked", "sending", "committing", "answering"}
	default:
		return []string{"received", "begun", "worked", "stored", "committing", "answering"}
	}
}

// doomed is a service in a process that ends as by kill -9: nothing is closed, flushed or rolled back.
type doomed struct {
	doom

	units *uow.Manager
	hit   atomic.Bool
}

// at ends the process if this is its point.
func (d *doomed) at(point string) {
	if d.Point == point && d.hit.CompareAndSwap(false, true) {
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Kill()
		}
		panic(err) // not reached, but for a moment
	}
}

// doomedConn sees what is sent to the database.
type doomedConn struct {
	net.Conn

	d *doomed
	// prepared are texts by the names of their statements.
	prepared map[string]string
}

func (c *doomedConn) Write(p []byte) (int, error) {
	if c.d.Point == "sending" && c.commits(p) && !c.d.hit.Load() {
		_, _ = c.Conn.Write(p[:len(p)/2])
		c.d.at("sending")
	}
	n, err := c.Conn.Write(p)
	// Sent, and nobody will know whether it came to pass.
	if c.d.Lease && bytes.Contains(bytes.ToLower(p), []byte("set state = 'completed'")) {
		c.d.at("completing")
	}
	if c.commits(p) {
		c.d.at("committing")
	}
	return n, err
}

// commits reports whether COMMIT is sent: as a text, or, where it is prepared, in one packet with an event and the answer.
func (c *doomedConn) commits(p []byte) bool {
	if c.d.Lease {
		return false
	}
	if c.d.Pool != "pipelined" {
		return bytes.Contains(bytes.ToLower(p), []byte("commit"))
	}
	var executed []string
	for len(p) >= 5 {
		size := 1 + int(binary.BigEndian.Uint32(p[1:]))
		if size < 5 || size > len(p) {
			break // no message: it is the first one, or a part
		}
		words := strings.SplitN(string(p[5:size]), "\x00", 3)
		switch p[0] {
		case 'P': // Parse: the name of a statement, its text
			c.prepared[words[0]] = words[1]
		case 'B': // Bind: a portal, the name of a statement
			executed = append(executed, c.prepared[words[1]])
		}
		p = p[size:]
	}
	return len(executed) == 3 && executed[0] == doomedEvent && strings.Contains(executed[1], "idempotency_keys") && executed[2] == "commit"
}

const doomedEvent = "INSERT INTO emitted (id) VALUES ($1)"

// Flush is called when the answer is written, and before COMMIT, where they do not leave together.
func (d *doomed) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	_, err := tx.NewRaw("INSERT INTO emitted (id) VALUES (?)", evs[0].ID).Exec(ctx)
	d.at("stored")
	return err
}

// together is a doomed one whose event leaves with COMMIT.
type together struct{ *doomed }

func (together) Enqueue(_ context.Context, _ bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	q.Queue(doomedEvent, evs[0].ID)
	return nil
}

func beDoomed(text string) int {
	go func() { // until the test has gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	d := &doomed{}
	if err := json.Unmarshal([]byte(text), &d.doom); err != nil {
		panic(err)
	}
	cfg, err := pgx.ParseConfig(d.DSN)
	if err != nil {
		panic(err)
	}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &doomedConn{conn, d, map[string]string{}}, err
	}
	connector, sink := stdlib.GetConnector(*cfg), uow.Sink(d)
	if d.Pool == "pipelined" {
		connector, sink = pgsql.NewConnector(*cfg), together{d}
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(10)
	quiet := slog.New(slog.DiscardHandler)
	d.units = uow.New(bun.NewDB(pool, pgdialect.New()), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet}}, sink)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, listener.Addr())
	config := &httpmw.IdempotencyConfig{Telemetry: telemetry.Config{Logger: quiet}}
	handler := d.atomic
	if d.Lease {
		config.Lease, handler = &httpmw.LeaseConfig{TTL: shortLease}, d.outside
	}
	store := idempotency.NewStore(&idempotency.Config{Schema: d.Schema, Telemetry: telemetry.Config{Logger: quiet}, Pooler: d.Pool == "pooled"})
	once := httpmw.Idempotency(d.units, store, byHeader, config)(http.HandlerFunc(handler))
	panic(http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.at("received")
		w.Header().Set(siegeHeader, d.Schema)
		if d.Without == "key" {
			r.Header.Set("Idempotency-Key", fmt.Sprint(time.Now().UnixNano()))
		}
		once.ServeHTTP(&doomedWriter{w, d}, r)
	})))
}

// doomedWriter sends half of an answer.
type doomedWriter struct {
	http.ResponseWriter

	d *doomed
}

func (w *doomedWriter) Write(p []byte) (int, error) {
	if w.d.Point == "answering" && !w.d.hit.Load() {
		_, _ = w.ResponseWriter.Write(p[:len(p)/2])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		w.d.at("answering")
	}
	return w.ResponseWriter.Write(p)
}

// atomic inserts a payment.
func (d *doomed) atomic(w http.ResponseWriter, r *http.Request) {
	d.at("begun")
	note, _ := io.ReadAll(r.Body)
	var id int64
	err := d.units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
		if err := u.Add("payment", json.RawMessage(`{}`)); err != nil {
			return err
		}
		return u.DB().QueryRowContext(ctx, "INSERT INTO payments (note) VALUES (?) RETURNING id", string(note)).Scan(&id)
	})
	d.at("worked")
	d.answer(w, id, err)
}

// outside asks another side for a payment, which knows keys.
func (d *doomed) outside(w http.ResponseWriter, r *http.Request) {
	d.at("claimed")
	note, _ := io.ReadAll(r.Body)
	pay := func(ctx context.Context, key string) (id int64, err error) {
		err = d.units.DB(ctx).QueryRowContext(ctx, `INSERT INTO payments (note, key) VALUES (?, ?)
			ON CONFLICT (key) DO UPDATE SET note = excluded.note RETURNING id`, string(note), key).Scan(&id)
		d.at("called")
		return id, err
	}
	var id int64
	var err error
	if d.Without == "step" {
		id, err = pay(r.Context(), fmt.Sprint(time.Now().UnixNano()))
	} else {
		id, err = step.Call(r.Context(), "pay", pay)
	}
	d.at("stepped")
	d.answer(w, id, err)
}

func (d *doomed) answer(w http.ResponseWriter, id int64, err error) {
	if err != nil {
		http.Error(w, "failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"id": %d}`, id)
}
