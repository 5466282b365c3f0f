package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

func TestStuckListsAllPartsAndLeadsOn(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("stuck").text(), "Nothing is stuck.")
	s.killedEvents(1)
	s.killedMessages(1)
	s.failingMessage("o-1")
	a := b.page("stuck")
	require.Len(t, a.links("letter?"), 2, a.text())
	require.Len(t, a.links("decide?action=retry"), 1)
	require.Len(t, a.links("decide?action=give-up"), 1)
	require.Contains(t, a.text(), "not now "+hostile)
	require.NotContains(t, a.body, "<script")
	for _, l := range append(a.links("letter?"), a.links("event?")...) {
		b.page(l)
	}
	for query, want := range map[string]int{"?consumer=billing": 1, "?consumer=shipping": 0, "?topic=order": 2, "?topic=invoice": 0, "?tenant=acme": 0} {
		require.Len(t, b.page("stuck"+query).links("letter?"), want, query)
	}
	require.Empty(t, b.as("bob", "read").page("stuck").links("decide?"), "bob may look only")
}

// The first page says first what does not run, and shows each consumer.
func TestTheOverviewTellsWhatDoesNotRun(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.killedEvents(1)
	s.place("o-0")
	s.Drain()
	a := b.page("")
	require.Contains(t, a.text(), "billing runs")
	require.Contains(t, a.text(), "Dead messages 0 ", "none is not 0+")
	s.failingMessage("o-1")
	require.NotContains(t, a.text(), "down")
	s.place("o-2")
	exec := func(statement string) {
		t.Helper()
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	exec("UPDATE outbox SET created_at = created_at - interval '1 hour'")
	exec("UPDATE inbox_consumer SET beat_at = beat_at - interval '1 hour'")
	text := b.page("").text()
	require.Contains(t, text, "billing not seen")
	require.Regexp(t, "down Events have waited for 1 h.*, and no relay publishes them. "+
		"Nothing is lost: the events are stored, and leave by themselves when a relay runs. "+
		"down The processes of billing have vanished, and messages wait for it. The messages wait until a process runs the consumer. decide 1 event", text)
	stuck := b.page("stuck").text()
	require.Contains(t, stuck, "Events wait, and no relay publishes them.")
	require.Contains(t, stuck, "Check whether its process still runs. If it does, mend its connection to the database")
	exec("UPDATE inbox_consumer SET stopped_at = clock_timestamp()")
	require.Contains(t, b.page("").text(), "down No process runs billing, and messages wait for it. The messages wait")
	require.NotContains(t, b.page("stuck").text(), "Check whether its process still runs")
	exec("UPDATE outbox_lane SET owner = 'relay-1', lease_until = now() + interval '1 hour'")
	require.Regexp(t, "down Events have waited for 1 h.*, although a relay is responsible for them.", b.page("").text())
	require.Contains(t, b.page("stuck").text(), "relay-1")
}

// A step of unknown outcome is resolved with a form, which keeps what was typed until it is complete.
func TestAnOutcomeIsWrittenDown(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	for _, key := range []string{"k-1", "k-2"} {
		s.unknownStep(key)
	}
	list := b.page("keys")
	stuck := b.page("stuck?").text() + b.page("stuck?each=1&step=charge").text()
	for _, part := range []string{"order o-7", "POST /orders", "ann"} {
		require.Contains(t, list.text(), part, "whose step it is")
		require.Contains(t, stuck, part)
	}
	form := list.form()
	for outcome, result := range map[string]string{"": "1", "done": "ch_42"} {
		form.Set("outcome", outcome)
		form.Set("result", result)
		form.Set("reason", "the bank has it")
		a := b.post("keys", form)
		require.Equal(t, http.StatusUnprocessableEntity, a.status)
		require.Contains(t, a.text(), "the bank has it", "what was typed is there")
		require.Contains(t, a.body, ">"+result+"</textarea>")
		require.Equal(t, 1, strings.Count(a.body, "the bank has it"), "in the form of that step only")
		require.Equal(t, 1, strings.Count(a.body, "<details open>"))
	}
	form.Set("outcome", "done")
	form.Set("result", `{"id": "ch_42"}`)
	form.Set("reason", " ")
	require.Contains(t, b.post("keys", form).text(), "Say why")
	form.Set("reason", "the bank has it")
	a := b.post("keys", form)
	require.Equal(t, http.StatusOK, a.status, a.text())
	require.Contains(t, a.text(), "The outcome was stored.")
	require.Equal(t, 1, strings.Count(a.body, "outcome unknown"))
	require.Equal(t, http.StatusConflict, b.post("keys", form).status)
}

func TestAMessageIsTriedAtOnce(t *testing.T) {
	s := newShop(t)
	s.failingMessage("o-1")
	b := s.serve(s.config())
	ask := b.page(b.page("stuck").links("decide?action=retry")[0])
	form := ask.form()
	require.Equal(t, http.StatusUnprocessableEntity, b.post("decide", form).status, "a reason is missing")
	form.Set("reason", "it works again")
	a := b.post("decide", form)
	require.Equal(t, http.StatusOK, a.status, a.text())
	require.Contains(t, a.text(), "The message is tried now.")
	s.Drain()
	require.EqualValues(t, 2, s.billed.Load())
	require.Contains(t, b.page("stuck").text(), "Nothing is stuck.")
	again := b.post("decide", form)
	require.Equal(t, http.StatusConflict, again.status)
	require.Contains(t, again.text(), "does not wait any more")
	entries, err := s.App.Inbox.Audit(t.Context(), operator.AuditFilter{}, nil, 5)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, []string{"ann@example.com", "it works again"}, []string{entries[0].Actor, entries[0].Reason})
}

func TestAMessageIsGivenUp(t *testing.T) {
	s := newShop(t)
	s.failingMessage("o-1")
	b := s.serve(s.config())
	form := b.page(b.page("stuck").links("decide?action=give-up")[0]).form()
	form.Set("reason", "it never works")
	require.Contains(t, b.post("decide", form).text(), "The message is a dead letter.")
	require.Len(t, b.page("dead?box=inbox").links("letter?"), 1)
}

func TestDelayedEventsAreMovedAndCancelled(t *testing.T) {
	s := newShop(t)
	for _, order := range []string{"o-1", "o-2"} {
		s.remind(order, time.Now().Add(48*time.Hour))
	}
	b := s.serve(s.config())
	list := b.page("delayed")
	require.Empty(t, b.as("bob", "read").page("delayed").links("decide?"), "bob may look only")

	form := b.page(list.links("decide?action=move")[0]).form()
	form.Set("reason", "sooner")
	form.Set("to", "tomorrow")
	require.Equal(t, http.StatusUnprocessableEntity, b.post("decide", form).status)
	form.Set("to", "2020-01-31T15:04")
	require.Contains(t, b.post("decide", form).text(), "The event was moved.")
	s.Drain()
	require.EqualValues(t, 1, s.billed.Load())
	require.Equal(t, http.StatusConflict, b.post("decide", form).status)

	rest := b.page("delayed").links("decide?action=cancel")
	require.Len(t, rest, 1)
	form = b.page(rest[0]).form()
	form.Set("reason", "paid")
	require.Contains(t, b.post("decide", form).text(), "The event was cancelled.")
	require.Contains(t, b.page("delayed").text(), "No event waits for its time.")
	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 5)
	require.NoError(t, err)
	require.Equal(t, []string{"paid", "sooner"}, []string{entries[0].Reason, entries[1].Reason})
}

// An event whose time has come and that was not published says by how much it is overdue. It can no longer be changed.
func TestAnOverdueEventSaysSo(t *testing.T) {
	s := newShop(t)
	s.remind("o-1", time.Now().Add(time.Hour))
	s.remind("o-2", time.Now().Add(time.Hour))
	s.Drain()
	_, err := s.DB.ExecContext(t.Context(), "UPDATE outbox_held SET not_before = now() - interval '40 min', retry_after = now() - interval '40 min' "+
		"WHERE seq = (SELECT min(seq) FROM outbox_held)")
	require.NoError(t, err)
	a := s.serve(s.config()).page("delayed")
	require.Contains(t, a.text(), "overdue by 40 min")
	require.Contains(t, a.text(), "in 59 min")
	require.Len(t, a.links("decide?action=cancel"), 1, "only one can be changed")
}

// remind adds a delayed event, which belongs to no ordering key.
func (s *shop) remind(order string, at time.Time) {
	s.t.Helper()
	s.placeWith(order, event.WithNotBefore(at))
}

func TestDecisionsAreRefused(t *testing.T) {
	s := newShop(t)
	s.failingMessage("o-1")
	b := s.serve(s.config())
	link := b.page("stuck").links("decide?action=retry")[0]
	form := b.page(link).form()
	form.Set("reason", "x")
	require.Equal(t, http.StatusForbidden, b.as("bob", "read").get(link).status)
	require.Equal(t, http.StatusForbidden, b.as("bob", "read").post("decide", form).status)
	require.Equal(t, http.StatusForbidden, b.as("eve", "read,act").post("decide", form).status, "the token is ann's")
	for field, value := range map[string]string{"action": "destroy", "ref": "box=outbox&id=" + aUUID + "&tenant=default", "token": ""} {
		wrong := url.Values{}
		for name := range form {
			wrong.Set(name, form.Get(name))
		}
		wrong.Set(field, value)
		require.GreaterOrEqual(t, b.post("decide", wrong).status, 400, field)
	}
	cfg := s.config()
	cfg.ReadOnly = true
	require.Equal(t, http.StatusForbidden, s.serve(cfg).post("decide", form).status)
	require.Zero(t, s.billed.Load())
}

const aUUID = "0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e"

func TestWholeLifeOfAnEvent(t *testing.T) {
	s := newShop(t)
	s.killedMessages(1)
	cfg := s.config()
	cfg.TraceURL = "https://traces.example.com/{trace_id}"
	b := s.serve(cfg)
	letters, err := s.App.Inbox.Dead().List(t.Context(), operator.DeadFilter{}, nil, 1)
	require.NoError(t, err)
	id := letters[0].Envelope.ID
	require.Contains(t, b.page("event").at, "/search", "without an id it asks for one")
	a := b.page("event?id=" + id)
	for _, want := range []string{"recorded", "published", "dead", "consumer billing", "unknown currency " + hostile} {
		require.Contains(t, a.text(), want)
	}
	require.Regexp(t, `<b>\d\d:\d\d:\d\d\.\d{3}</b>`, a.body, "the time to the millisecond")
	require.Equal(t, []string{"dead?id=" + id}, a.links("dead?"))
	require.Contains(t, b.page("dead?id="+id).body, "letter?", "the dead letter is there, and can be opened")
	require.NoError(t, s.App.Inbox.Dead().Discard(t.Context(), letters[0].Key, operator.By{Actor: "ann", Reason: "a test"}))
	require.Empty(t, b.page("event?id="+id).links("dead?"), "nothing is left to decide")
	require.Regexp(t, `published`, a.text())
	require.GreaterOrEqual(t, strings.Count(a.body, `data-label="Later" class="number">+`), 2, "each row but the first says how much later it was")
	require.NotContains(t, a.body, "<script")
	require.Equal(t, http.StatusNotFound, b.get("event?id="+aUUID).status)
	unknown := b.get("event?id=" + url.QueryEscape(hostile))
	require.Equal(t, http.StatusNotFound, unknown.status)
	require.NotContains(t, unknown.body, "<script")
	require.Equal(t, http.StatusNotFound, b.get("event?id=7&source=partner").status)
}

// A service need not have all parts.
func TestPagesOfPartsThatAreMissing(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	for name, cfg := range map[string]*console.Config{
		"outbox": {Outbox: s.App.Outbox}, "inbox": {Inbox: s.App.Inbox}, "keys": {Idempotency: s.App.Idempotency},
	} {
		b := s.serve(cfg)
		for _, page := range []string{"", "stuck"} {
			a := b.page(page)
			require.NotContains(t, a.text(), "This could not be answered", name)
			for _, l := range a.links("") {
				if !strings.Contains(l, "://") && l != "#main" {
					require.Less(t, b.get(l).status, 400, "%s: %s", name, l)
				}
			}
		}
	}
}
