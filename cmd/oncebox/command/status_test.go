package command

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/status"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// trouble has an event of each kind of trouble, and a relay.
func (s *shop) trouble() {
	s.t.Helper()
	s.killed()
	s.failing.Store(true)
	s.place("failing message")
	s.DrainFailing()
	s.failing.Store(false)
	s.unknownStep()
	s.place("new")
	for _, relay := range []string{"relay-1", "relay-2"} {
		_, err := lanedb.Of(s.App.Outbox.Handle()).Leases.Heartbeat(s.t.Context(), relay, 0, time.Hour)
		require.NoError(s.t, err)
	}
	s.exec("UPDATE outbox_projector SET seen_until = clock_timestamp() - interval '1 minute' WHERE owner = 'relay-2'")
}

func TestStatusIsOneScreen(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.trouble()
	item := document[status.Item](t, s.oncebox("status", "--json"))
	require.Equal(t, []int64{1, 1, 0, 1}, []int64{item.Outbox.Backlog, item.Outbox.New, item.Outbox.Held, item.Outbox.Dead})
	require.Equal(t, []status.ShareItem{{Topic: "order", Tenant: "default", New: 1, Dead: 1}}, item.Shares)
	require.Equal(t, []status.RelayItem{{Owner: "relay-1", Alive: true}, {Owner: "relay-2"}}, item.Relays)
	require.Len(t, item.Consumers, 1)
	c := item.Consumers[0]
	require.Equal(t, []any{"billing", true, 1, 1, 1, 1}, []any{c.Consumer, c.Runs, c.Parked, c.KeysFailed, c.KeysDead, c.Dead})
	require.Equal(t, 1, item.UnknownSteps)
	require.Nil(t, item.Outbox.RecordedPerSecond, "there is no rate of one reading")

	text := s.oncebox("status")
	require.Zero(t, text.code, text.errs)
	squeezed := strings.Join(strings.Fields(text.out), " ")
	for _, part := range []string{
		"events waiting 1: 1 new, 0 held", "dead events 1", "dead messages 1", "unknown steps 1", "lanes 64: events wait in 1, ",
		"relays relay-1 (0 lanes); vanished: relay-2", "TOPIC TENANT NEW HELD DEAD order default 1 0 1", "billing yes 1 ",
	} {
		require.Contains(t, squeezed, part)
	}
	require.Less(t, strings.Count(text.out, "\n"), 24, "one screen")
}

func TestStatusOfATenantATopicAndAConsumer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.trouble()
	other := document[status.Item](t, s.oncebox("status", "--tenant", "acme", "--json"))
	require.Equal(t, []int64{0, 0, 0}, []int64{other.Outbox.Backlog, other.Outbox.Dead, int64(other.UnknownSteps)})
	require.Empty(t, other.Shares)
	require.Equal(t, []int{0, 0}, []int{other.Consumers[0].Parked, other.Consumers[0].Dead})
	topic := s.oncebox("status", "--topic", "order").out
	require.NotContains(t, topic, "oldest  ", "that of a topic is not known")
	require.Contains(t, strings.Join(strings.Fields(topic), " "), "billing yes 1 - - - 1")
	require.Empty(t, document[status.Item](t, s.oncebox("status", "--consumer", "shipping", "--json")).Consumers)
	require.Equal(t, cli.ExitUsage, s.oncebox("status", "--watch=0s").code)
	require.Equal(t, cli.ExitUsage, s.oncebox("status", "now").code)
}

// frames is an output that is interrupted when it has shown so many.
type frames struct {
	bytes.Buffer

	left      int
	mark      string
	interrupt func()
}

func (f *frames) Write(p []byte) (int, error) {
	if f.left -= strings.Count(string(p), f.mark); f.left <= 0 {
		f.interrupt()
	}
	return f.Buffer.Write(p)
}

func (s *shop) watched(mark string, size func() (int, int), args ...string) (out, errs string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	shown := &frames{left: 3, mark: mark, interrupt: cancel}
	var said bytes.Buffer
	code := runPulsar(ctx, &cli.Terminal{Out: shown, Errs: &said, Size: size},
		append([]string{"--database-url", pgtest.URL(s.t), "--schema", s.Schema, "status", "--watch=1ms"}, args...))
	require.Equal(s.t, cli.ExitDone, code, said.String())
	return shown.String(), said.String()
}

// On a terminal the screen is drawn anew each time, no larger than it is, and what was there before comes back at the end.
func TestWatchRedrawsTheScreen(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.trouble()
	s.exec("UPDATE outbox SET topic = ?", "bad\x1b[2J")
	out, _ := s.watched(status.ScreenTop, func() (int, int) { return 50, 20 })
	require.True(t, strings.HasPrefix(out, status.EnterScreen+status.ScreenTop))
	require.True(t, strings.HasSuffix(out, status.LeaveScreen))
	drawn := strings.Split(strings.TrimSuffix(strings.TrimPrefix(out, status.EnterScreen+status.ScreenTop), status.LeaveScreen), status.ScreenTop)
	require.Len(t, drawn, 3)
	for _, screen := range drawn {
		lines := strings.Split(strings.TrimSuffix(screen, status.ScreenEnd), status.LineEnd)
		require.LessOrEqual(t, len(lines), 20)
		for _, line := range lines {
			require.LessOrEqual(t, len([]rune(line)), 50)
			require.NotContains(t, line, "\x1b")
		}
	}
	require.Contains(t, drawn[0], "Ctrl-C ends it")
	require.Contains(t, drawn[0], "backlog")
	require.NotContains(t, drawn[0], "recorded")
	require.Contains(t, drawn[2], "recorded")
	require.Contains(t, drawn[2], "███", "the course of the backlog, which stays as it is")
	tall, _ := s.watched(status.ScreenTop, func() (int, int) { return 200, 60 })
	require.Contains(t, tall, "bad\uFFFD[2J")
}

func TestWatchWithoutATerminalPrintsLines(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.trouble()
	out, _ := s.watched("\n", nil)
	require.NotContains(t, out, "\x1b")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^\S+Z backlog=1 new=1 held=0 oldest=\S+s failed=0 delayed=0 `+
		`dead_events=1 parked=1 dead_messages=1 unknown_steps=1 free_lanes=\d+$`, lines[0])
	require.Contains(t, lines[1], " recorded_per_second=")
	out, _ = s.watched("\n", nil, "--tenant", "default")
	require.NotContains(t, out, "per_second", "the rate of a tenant is not known")
	require.NotContains(t, out, "oldest")
	out, _ = s.watched("\n", func() (int, int) { return 80, 24 }, "--json")
	for line := range strings.Lines(out) {
		var item status.Item
		require.NoError(t, json.Unmarshal([]byte(line), &item))
		require.EqualValues(t, 1, item.Outbox.Backlog)
	}
}

// teller is an output that reports what was written so far.
type teller struct {
	bytes.Buffer

	tell func(all string)
}

func (o *teller) Write(p []byte) (int, error) {
	n, err := o.Buffer.Write(p)
	o.tell(o.String())
	return n, err
}

// A database that is away for a while ends no watch. A database that is not there at the beginning does.
func TestWatchGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, size := range []func() (int, int){nil, func() (int, int) { return 80, 24 }} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gone := false
		out := &teller{tell: func(all string) {
			switch {
			case strings.Contains(all, "the next try follows"):
				cancel()
			case !gone:
				gone = true
				s.exec("ALTER TABLE outbox_projector RENAME TO gone")
			}
		}}
		code := runPulsar(ctx, &cli.Terminal{Out: out, Errs: out, Size: size},
			[]string{"--database-url", pgtest.URL(t), "--schema", s.Schema, "status", "--watch=1ms"})
		require.Equal(t, cli.ExitDone, code)
		said := strings.ReplaceAll(out.String(), status.LineEnd, "")
		require.Contains(t, said, "outbox_projector\" does not exist", "the whole error, in several lines")
		s.exec("ALTER TABLE gone RENAME TO outbox_projector")
	}
	s.exec("ALTER TABLE outbox_projector RENAME TO gone")
	require.Equal(t, cli.ExitFailed, s.oncebox("status", "--watch").code)
}
