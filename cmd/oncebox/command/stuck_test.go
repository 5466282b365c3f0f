package command

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/keys"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/status"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/stuck"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/uow"
)

// stuck runs the command, and returns the listed things by kind.
func (s *shop) stuck() map[ops.Kind]stuck.Item {
	s.t.Helper()
	a := s.oncebox("stuck", "--json")
	var list []stuck.Item
	require.NoError(s.t, json.Unmarshal([]byte(a.out), &list), a.errs)
	require.Equal(s.t, len(list) > 0, a.code == cli.ExitFindings, a.errs)
	kinds := map[ops.Kind]stuck.Item{}
	for _, i := range list {
		require.NotContains(s.t, kinds, i.Kind)
		kinds[i.Kind] = i
	}
	return kinds
}

// typed runs a printed command, at a terminal whose user agrees.
func (s *shop) typed(do string, more ...string) answer {
	s.t.Helper()
	at := strings.Index(do, s.called.Name()+" ")
	require.GreaterOrEqual(s.t, at, 0, do)
	return s.asked("y\n", append(words(s.t, do[at:]), more...)...)
}

// words are the arguments of a command as a shell has them.
func words(t *testing.T, line string) []string {
	t.Helper()
	_, args, _ := strings.Cut(line, " ")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `set -- `+args+`; for word; do printf '%s\0' "$word"; done`)
	cmd.Env = append(os.Environ(), "USER=ann")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", line, out)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// unknownStep makes a request fail in a call to another system, so that nobody knows whether the call was done.
func (s *shop) unknownStep() {
	s.t.Helper()
	scope := idempotency.Scope{Tenant: "default", Principal: "u-17", Caller: "ann"}
	scope.Method, scope.Path, scope.Key = "POST", "/orders", "k"
	key, err := s.App.Idempotency.Key(scope)
	require.NoError(s.t, err)
	claim, _, err := s.App.Idempotency.Claim(s.t.Context(), s.DB, key, idempotency.NewFingerprint("v1"))
	require.NoError(s.t, err)
	require.ErrorIs(s.t, claim.Run(s.t.Context(), func(ctx context.Context) error {
		ctx = idempotency.WithLabel(ctx, "order o-7")
		_, err := idempotency.StepOnce(ctx, "charge", func(context.Context) (string, error) { return "", errors.New("no answer") })
		return err
	}), idempotency.ErrStepUnknown)
	require.NoError(s.t, claim.Release(s.t.Context()))
}

// delayed makes an event wait for tomorrow.
func (s *shop) delayed() {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", orderPlaced{"42"}, event.WithAggregate("order", "42", 1), event.WithID(uuid.Must(uuid.NewV7()).String()),
			event.WithNotBefore(time.Now().Add(24*time.Hour)))
	}))
}

// An operator finds what is stuck and which commands to type. After at most three commands each stuck thing flows again.
func TestOperatorMendsWhatIsStuck(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.place("good")
	s.Drain()
	require.Equal(t, answer{out: "Nothing is stuck.\n"}, s.oncebox("stuck"))
	s.killed()
	s.failing.Store(true)
	s.place("failing message")
	s.FailNextPublish(nil, errors.New("refused"))
	s.place("failing event")
	s.DrainFailing()
	s.unknownStep()
	s.failing.Store(false)
	s.delayed()

	found := s.stuck()
	require.Len(t, found, 5, "%v", found)
	text := s.oncebox("stuck").out
	for _, part := range []string{
		"event dead", "no schema", "message dead", "at consumer billing", "step unknown  requests with the key are refused",
		"later events or messages of the ordering key default|poison event wait behind it",
	} {
		require.Contains(t, text, part)
	}
	require.NotContains(t, text, "\x1b", "what a terminal would obey")

	by := []string{"--by", "ann", "--why", "mended", "--yes"}
	for _, kind := range []ops.Kind{ops.EventDead, ops.MessageDead} {
		shown := s.typed(found[kind].Do)
		require.Zero(t, shown.code, shown.errs)
		id := found[kind].ID
		if kind == ops.MessageDead {
			id = found[kind].MessageKey
		}
		require.Zero(t, s.oncebox(append([]string{"dead", "replay", id}, by...)...).code)
	}
	failing := found[ops.MessageFailing]
	require.NotNil(t, failing.Next)
	retried := s.typed(failing.Do)
	require.Zero(t, retried.code, retried.errs)
	unknown := found[ops.StepUnknown]
	require.Contains(t, s.oncebox("keys", "resolve", unknown.ID[:7], "charge", "--not-done", "--by", "ann", "--why", "x").errs, "too short")
	asked := s.asked("n\n", "keys", "resolve", unknown.ID[:16]+"...", "charge", "--done", `{"id": "ch_42"}`, "--by", "ann", "--why", "x")
	require.Equal(t, cli.ExitRefused, asked.code, "the beginning of the key is enough")
	require.Contains(t, asked.errs, `as done with the result {"id": "ch_42"}?`)
	resolved := s.typed(unknown.Or)
	require.Zero(t, resolved.code, resolved.errs)
	require.Equal(t, cli.ExitNothing, s.typed(unknown.Do).code, "it is known now")

	delayed := document[[]events.DelayedEvent](t, s.oncebox("delayed", "list", "--json"))
	require.Len(t, delayed, 1)
	require.Zero(t, s.oncebox("delayed", "move", delayed[0].ID, "--to", "0m", "--by", "ann", "--yes").code)

	s.Advance(time.Hour) // the refused event is tried again by itself
	s.Drain()
	require.EqualValues(t, 6, s.billed.Load())
	require.Empty(t, s.stuck())
	status := document[status.Item](t, s.oncebox("status", "--json"))
	require.Equal(t, []int64{0, 0, 0}, []int64{status.Outbox.Backlog, status.Outbox.Delayed, status.Outbox.Dead})
	require.Equal(t, []int{0, 0, 0}, []int{status.UnknownSteps, status.Consumers[0].Parked, status.Consumers[0].Dead})
	require.Equal(t, keys.Free, document[[]keys.Item](t, s.oncebox("keys", "list", "--json"))[0].State, "the next request with it goes on")
}

// Relays and consumers that do not run come first.
func TestStuckTellsWhatDoesNotRun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.failing.Store(true)
	s.place("failing message")
	s.DrainFailing()
	s.place("nobody publishes it")
	for _, table := range []string{"inbox_consumer SET beat_at = beat_at", "outbox SET created_at = created_at"} {
		_, err := s.DB.ExecContext(t.Context(), "UPDATE "+table+" - interval '1 hour'")
		require.NoError(t, err)
	}
	found := s.stuck()
	require.Contains(t, found, ops.RelayMissing)
	require.Equal(t, "billing", found[ops.ConsumerMissing].Consumer)
	text := s.oncebox("stuck").out
	require.Contains(t, text, "relay missing")
	require.Contains(t, text, "message failing")
	require.Less(t, strings.Index(text, "relay missing"), strings.Index(text, "message failing"))
	require.Contains(t, text, "start a process of the service that runs the consumer billing")
	require.True(t, found[ops.ConsumerMissing].Vanished)
	require.Contains(t, text, "the processes that run billing have vanished")
	require.Contains(t, text, "they were killed, are frozen, or cannot reach the database")
	require.Contains(t, text, "check whether its process still runs; if it does, mend its connection to the database")
	require.Contains(t, s.oncebox("status").out, "not seen since")
	s.exec("UPDATE inbox_consumer SET stopped_at = clock_timestamp()")
	text = s.oncebox("stuck").out
	require.Contains(t, text, "no process runs billing")
	require.Contains(t, text, "its last process shut down cleanly")
	require.NotContains(t, text, "check whether its process still runs")

	// A relay that has the lanes and publishes nothing: the broker is away, for example.
	_, err := s.DB.ExecContext(t.Context(), "UPDATE outbox_lane SET owner = 'relay-1', lease_until = now() + interval '1 hour'")
	require.NoError(t, err)
	late := s.stuck()[ops.RelayLate]
	require.Equal(t, "relay-1", late.Relay)
	require.Contains(t, late.Do, "oncebox doctor")
	require.Contains(t, s.oncebox("stuck").out, "a relay is responsible for them")
}

// A message that fails is given up by hand, and is a dead letter then.
func TestParkedMessageIsGivenUp(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.failing.Store(true)
	s.place("a")
	s.DrainFailing()
	item := s.stuck()[ops.MessageFailing]
	giveUp := []string{"parked", "give-up", item.MessageKey, "--consumer", "billing", "--by", "ann"}
	require.Equal(t, cli.ExitUsage, s.oncebox(giveUp...).code, "what is behind it waits: it says why")
	giveUp = append(giveUp, "--why", "the customer is gone")
	require.Equal(t, cli.ExitRefused, s.oncebox(giveUp...).code)
	require.Zero(t, s.asked("y\n", giveUp...).code)
	require.Contains(t, s.stuck(), ops.MessageDead)
	require.Equal(t, cli.ExitNothing, s.asked("y\n", giveUp...).code)
}

func TestResolveSaysOneThing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, args := range [][]string{
		{"k"}, {"k", "s"}, {"k", "s", "--by", "ann", "--why", "x"}, {"k", "s", "--by", "ann", "--why", "x", "--done", "no json"},
		{"k", "s", "--by", "ann", "--why", "x", "--done", "1", "--not-done"}, {"k", "s", "--by", "ann", "--not-done"},
	} {
		require.Equal(t, cli.ExitUsage, s.oncebox(append([]string{"keys", "resolve"}, args...)...).code, args)
	}
	refused := s.oncebox("keys", "resolve", "0d6e9c9f", "s", "--by", "ann", "--why", "x", "--done", "ch_42")
	require.Contains(t, refused.errs, `--done ch_42 is not JSON: a text needs its own quotes inside those of the shell, as in --done '"ch_42"'`)
	require.Equal(t, cli.ExitNothing, s.oncebox("keys", "resolve", "0d6e9c9f", "s", "--by", "ann", "--why", "x", "--not-done", "--yes").code)
}

// A database that no service has used may be the wrong one, although nothing is stuck in it.
func TestUnusedDatabaseIsSaid(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const said = "has no relay, no consumer and no event"
	require.Contains(t, s.oncebox("status").out, said)
	empty := s.oncebox("stuck")
	require.Zero(t, empty.code)
	require.Contains(t, empty.out, said)
	require.Empty(t, list[stuck.Item](t, s.oncebox("stuck", "--json")))
	s.place("an order")
	require.NotContains(t, s.oncebox("status").out, said)
	require.NotContains(t, s.oncebox("stuck").out, said)
}

// Causes leave out what differs. One of the errors is printed whole: it names the address that is away.
func TestCauseHasAnExample(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.refuse = func(*messaging.Message) error {
		return errors.New(`Post "http://127.0.0.1:9009/charge": connection refused`)
	}
	s.place("a")
	s.place("b")
	s.DrainFailing()
	text := s.oncebox("stuck").out
	require.Contains(t, text, `billing: 2 ordering keys fail, "Post …: connection refused"`)
	require.Regexp(t, `for example +Post "http://127.0.0.1:9009/charge": connection refused\n`, text)
}

// An outage of the broker is one entry, with what follows from it. Each finding is listed with --each and --json.
func TestABrokerThatIsAwayIsOneEntry(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.place("waits")
	for _, statement := range []string{
		"DELETE FROM inbox_consumer", "DELETE FROM inbox_topic",
		`INSERT INTO outbox_projector (owner, seen_until, error, failed_at, failing_since) VALUES
			('relay-1', now() + interval '1 hour', 'web: connection refused', now() + interval '1 second', now() - interval '2 minutes')`,
		"UPDATE outbox_lane SET owner = 'relay-1', lease_until = now() + interval '1 hour'",
		"UPDATE outbox SET created_at = created_at - interval '2 minutes'",
		`INSERT INTO inbox_consumer (consumer, beat_at) VALUES ('mailer', now()), ('stats', now())`,
		`INSERT INTO inbox_topic (topic, consumer, subscribed, error, failed_at)
			SELECT 'order', c, true, 'no answer', now() FROM unnest(ARRAY['mailer', 'stats']) c`,
		`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, error, failed_at, seen_until)
			SELECT c, 'order', '00000000-0000-0000-0000-000000000001', 'worker-1', 'AWAY', now() - interval '100 seconds', 0,
				'worker: connection refused', now(), now() + interval '1 hour' FROM unnest(ARRAY['mailer', 'stats']) c`,
	} {
		s.exec(statement)
	}
	said := s.oncebox("stuck")
	require.Regexp(t, `^broker away +The broker cannot be reached from relay-1, worker-1 since \d\d:\d\d:\d\d UTC: nothing is published, 1 event waits; `+
		`consumers receive nothing\nerror +web: connection refused\n`+
		`so +relay late: relay-1, consumer away: mailer order, consumer away: stats order\n`, said.out)
	require.NotContains(t, said.out, "consumer away  ")
	require.Contains(t, said.errs, "3 things are stuck, for 1 reason")
	each := s.oncebox("stuck", "--each").out
	require.Contains(t, each, "mailer lacks connections to the broker")
	require.Contains(t, each, "stats lacks connections to the broker")

	s.exec("UPDATE inbox_process SET state = 'CONNECTED' WHERE consumer = 'stats'")
	said = s.oncebox("stuck")
	require.Contains(t, said.out, "broker away")
	require.Contains(t, said.out, "mailer lacks connections to the broker", "one of several is an entry of its own")
}
