package uow_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// changed is the event of the tests.
type changed struct{ Text string }

func (changed) EventType() string { return "account.changed" }

// unregistered is an event that nobody registered.
type unregistered struct{}

func (unregistered) EventType() string { return "account.unheard_of" }

// account is the aggregate of the tests.
type account struct {
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version int64
}

func (*account) AggregateType() string     { return "account" }
func (a *account) AggregateID() string     { return a.ID }
func (a *account) AggregateVersion() int64 { return a.Version }

func newAccount(id string, texts ...string) *account {
	a := &account{ID: id}
	for _, text := range texts {
		a.Record(changed{text})
	}
	return a
}

// service is a schema with a table of notes, which stands for the data, and a table of what reached the sink.
type service struct {
	*pgtest.DB

	units *uow.Manager
	sink  *tableSink
	logs  *logs
}

// newService makes the tables. Other pools than db's own are given for tests that break them.
func newService(t *testing.T, cfg *uow.Config, pool ...*bun.DB) *service {
	t.Helper()
	s := &service{DB: pgtest.Open(t), sink: &tableSink{}, logs: &logs{}}
	s.init(t, cfg, append(pool, s.DB.DB)[0])
	return s
}

func (s *service) init(t *testing.T, cfg *uow.Config, pool *bun.DB) {
	t.Helper()
	_, err := s.DB.Exec(`
		CREATE TABLE notes (pos serial, text text UNIQUE DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE sunk (pos serial, line text)`)
	require.NoError(t, err)
	s.units = s.manager(cfg, pool, s.sink)
}

func (s *service) manager(cfg *uow.Config, pool *bun.DB, sinks ...uow.Sink) *uow.Manager {
	var c uow.Config
	if cfg != nil {
		c = *cfg
	}
	if c.Registry == nil {
		c.Registry = event.NewRegistry()
		event.Register[changed](c.Registry)
	}
	c.Retry.MaxElapsed = cmp.Or(c.Retry.MaxElapsed, -1)                     // a machine that stands still costs no try
	c.Source, c.Telemetry.Logger = "test", quietlog.Every(slog.New(s.logs)) // tests wait for lines
	return uow.New(pool, &c, sinks...)
}

// note stores one row.
func note(ctx context.Context, u *uow.Unit, text string) error {
	_, err := u.DB().NewRaw("INSERT INTO notes (text) VALUES (?)", text).Exec(ctx)
	return err
}

func lines(t *testing.T, db bun.IDB, query string, args ...any) []string {
	t.Helper()
	all := []string{}
	require.NoError(t, db.NewRaw(query, args...).Scan(context.Background(), &all))
	return all
}

// notes are the rows that are committed.
func (s *service) notes(t *testing.T) []string {
	t.Helper()
	return lines(t, s, "SELECT text FROM notes ORDER BY pos")
}

// sunk are the events that are committed.
func (s *service) sunk(t *testing.T) []string {
	t.Helper()
	return lines(t, s, "SELECT line FROM sunk ORDER BY pos")
}

// requireNothing checks that neither data nor events are there, and that no connection was lost on the way.
func (s *service) requireNothing(t *testing.T) {
	t.Helper()
	require.Empty(t, s.notes(t))
	require.Empty(t, s.sunk(t))
	require.Empty(t, s.sink.committed)
	require.Zero(t, s.Stats().InUse, "connections that were not given back")
}

// requireGivenBack waits until no connection of the pool is in use. The one whose BEGIN was cancelled is given back by database/sql, in
// the background.
func requireGivenBack(t *testing.T, pool *bun.DB, of string) {
	t.Helper()
	await.True(t, func() bool { return pool.Stats().InUse == 0 }, "%s: a connection was not given back", of)
}

// line is how tests see an event: "account 7 v2 hello", or "topic hello" if it is of no aggregate.
func line(e event.Envelope) string {
	text := strings.TrimSuffix(strings.TrimPrefix(string(e.Payload), `{"Text":"`), `"}`)
	if e.AggregateID == "" {
		return e.Topic + " " + text
	}
	return fmt.Sprintf("%s %s v%d %s", e.AggregateType, e.AggregateID, e.AggregateVersion, text)
}

// tableSink stores events as lines.
type tableSink struct {
	// before and after are run around the statement.
	before, after func(context.Context, bun.IDB) error

	mu        sync.Mutex
	committed []string
	envelopes []event.Envelope
}

func (s *tableSink) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	if s.before != nil {
		if err := s.before(ctx, tx); err != nil {
			return err
		}
	}
	for i := range evs {
		evs[i].Sequence = int64(i + 1)
		if _, err := tx.NewRaw("INSERT INTO sunk (line) VALUES (?)", line(evs[i])).Exec(ctx); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.envelopes = slices.Clone(evs)
	s.mu.Unlock()
	if s.after != nil {
		return s.after(ctx, tx)
	}
	return nil
}

func (s *tableSink) Committed(_ context.Context, evs []event.Envelope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range evs {
		s.committed = append(s.committed, line(e))
	}
}

// logs keeps the log lines, and notifies a waiting test at once.
type logs struct {
	mu    sync.Mutex
	texts []string
	on    func(text string)
}

func (*logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l *logs) WithGroup(string) slog.Handler          { return l }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			text += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		}
		return true
	})
	l.mu.Lock()
	l.texts = append(l.texts, text)
	on := l.on
	l.mu.Unlock()
	if on != nil {
		on(text)
	}
	return nil
}

func (l *logs) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.texts, "\n")
}

// errRefused is what functions of the tests fail with.
var errRefused = errors.New("refused")
