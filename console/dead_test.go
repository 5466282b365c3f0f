package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

func TestDeadLettersAreFilteredByTheAddress(t *testing.T) {
	s := newShop(t)
	s.killedEvents(2)
	s.killedMessages(1)
	b := s.serve(s.config())
	for query, want := range map[string]int{
		"":                                      2,
		"?box=outbox":                           2,
		"?box=inbox":                            1,
		"?box=inbox&consumer=billing":           1,
		"?box=inbox&consumer=shipping":          0,
		"?error=order+1":                        1,
		"?type=order.placed&topic=order":        2,
		"?topic=invoice":                        0,
		"?tenant=acme":                          0,
		"?from=1h":                              2,
		"?before=1h":                            0,
		"?from=2020-01-31T15:04":                2,
		"?before=2020-01-31T15:04:00%2B01:00":   0,
		"?box=inbox&error=unknown+currency+%3C": 1,
	} {
		a := b.page("dead" + query)
		require.Len(t, a.links("letter?"), want, "%s: %s", query, a.text())
	}
	for _, query := range []string{"?id=7", "?from=yesterday", "?box=mail", "?at=x", "?at=1&seq=x", "?topic=" + strings.Repeat("x", 300)} {
		require.Equal(t, http.StatusBadRequest, b.get("dead"+query).status, query)
	}
}

func TestDeadLettersHavePages(t *testing.T) {
	s := newShop(t)
	for _, box := range []string{"outbox", "inbox"} {
		_, err := s.DB.ExecContext(t.Context(), map[string]string{"outbox": deadEvents, "inbox": deadMessages}[box], 120)
		require.NoError(t, err)
		b := s.serve(s.config())
		seen := map[string]bool{}
		pages := 0
		for next := []string{"dead?box=" + box}; len(next) > 0; pages++ {
			a := b.page(next[0])
			for _, l := range a.links("letter?") {
				require.False(t, seen[l], "%s twice", l)
				seen[l] = true
			}
			next = nil
			if i := strings.Index(a.body, `rel="next"`); i > 0 {
				next = a.links("dead?at=")
				require.NotEmpty(t, next)
				next = next[len(next)-1:]
			}
			require.Contains(t, a.text(), []string{"1 to 50 of 120", "51 to 100 of 120", "101 to 120 of 120"}[pages])
		}
		require.Equal(t, 3, pages)
		require.Len(t, seen, 120)
	}
}

const deadEvents = `
INSERT INTO outbox_dead (seq, id, occurred_at, created_at, aggregate_version, schema_version, retry_count, crashes,
	aggregate_type, aggregate_id, content_type, event_metadata, lane, tenant_id, topic, event_type, source, payload, died_at, error_message, fingerprint)
SELECT 1000000 + n, gen_random_uuid(), now(), now(), 0, 1, 1, 0, '', '', 'application/json', '{}', n % 64, 'default', 'order', 'order.placed', 'shop',
	'{}', now() - n / 7 * interval '1 min', 'no schema ' || n, 'e0e0e0e0e0e0e0e0'
FROM generate_series(1, ?) n`

const deadMessages = `
INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, payload,
	error_message, key_lock, seq, holds, died_at, fingerprint)
SELECT gen_random_uuid(), 'billing', 't&1', 's', n::text, 'e', 'order', 'k' || n, 'text/plain', 'x', 'no', n, n, false,
	now() - n / 7 * interval '1 min', 'a0a0a0a0a0a0a0a0'
FROM generate_series(1, ?) n`

// Contents of events and messages are shown as text: in the list, on the page of a letter, in its payload, in the
// audit, and in the filter.
func TestHostileStringsAreText(t *testing.T) {
	s := newShop(t)
	s.killedMessages(1)
	_, err := s.DB.ExecContext(t.Context(), `UPDATE inbox_dead SET event_type = ?0, topic = ?0, tenant_id = ?0, source = ?0, payload = convert_to(?0, 'UTF8'),
		event_metadata = json_build_object(?0::text, ?0::text, 'traceparent', ?0::text)`, hostile)
	require.NoError(t, err)
	b := s.serve(s.config()).as(hostile, "read,act")
	letter := b.page("dead?box=inbox").links("letter?")[0]
	for _, page := range []string{"", "dead?box=inbox", "dead?box=inbox&error=" + url.QueryEscape(hostile), letter, "audit?box=inbox"} {
		a := b.page(page)
		require.NotContains(t, a.body, "<script", page)
		require.NotContains(t, a.body, "<img", page)
		if page != "audit?box=inbox" {
			require.Contains(t, a.text(), hostile[:20], page)
		}
	}
	confirm := b.page("confirm?action=replay&ref=" + url.QueryEscape(strings.TrimPrefix(letter, "letter?")))
	require.NotContains(t, confirm.body, "<script")
	form := confirm.form()
	form.Set("reason", hostile)
	require.Equal(t, http.StatusOK, b.post("act", form).status)
	a := b.page("audit?box=inbox")
	require.NotContains(t, a.body, "<script")
	require.Contains(t, a.text(), hostile)
}

// The payload is what an operator edits, so it is on the page of the letter, and in no list.
func TestPayloadIsShownBesideItsLetterOnly(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	b := s.serve(s.config())
	list := b.page("dead")
	require.NotContains(t, list.text(), `"order": "poison event 0"`)
	require.Contains(t, b.page(list.links("letter?")[0]).text(), `"order": "poison event 0"`)
}

func TestOneIsReplayedWithTheActorAndTheReasonInTheAudit(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	s.killedMessages(1)
	b := s.serve(s.config())
	for _, box := range []string{"outbox", "inbox"} {
		letter := b.page(b.page("dead?box=" + box).links("letter?")[0])
		form := b.page(letter.links("confirm?action=replay")[0]).form()
		form.Set("reason", " ")
		a := b.post("act", form)
		require.Equal(t, http.StatusUnprocessableEntity, a.status)
		require.Contains(t, a.text(), "Say why")
		require.Len(t, b.page("dead?box="+box).links("letter?"), 1, "nothing was changed")
		form.Set("reason", "schema 7 is there")
		a = b.post("act", form)
		require.Equal(t, http.StatusOK, a.status, a.text())
		require.Contains(t, a.text(), "1 dead letter was replayed.")
		require.Contains(t, a.at, "/admin/console/dead?box="+box, "back to the list that it was in")
		require.Contains(t, b.page(a.links("event?")[0]).text(), "replay, by ann@example.com")
		require.Empty(t, b.page("dead?box="+box).links("letter?"))
		require.Contains(t, b.page("audit?box="+box).text(), "ann@example.com replay")
		require.Contains(t, b.page("audit?box="+box).text(), "schema 7 is there")
		require.Equal(t, http.StatusConflict, b.post("act", form).status, "somebody was faster")
	}
	s.Drain()
	require.EqualValues(t, 2, s.billed.Load())
}

func TestAnEditedPayloadIsReplayed(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	s.killedMessages(1)
	b := s.serve(s.config())
	for _, box := range []string{"outbox", "inbox"} {
		letter := b.page(b.page("dead?box=" + box).links("letter?")[0])
		require.NotContains(t, letter.body, `class="button primary"`, "neither Replay nor Edit is the usual choice")
		require.Contains(t, letter.text(), "Edit if the payload itself is wrong")
		edit := b.page(letter.links("edit?")[0])
		require.Contains(t, edit.text(), "It keeps no payload, neither the old nor the new one")
		require.Contains(t, edit.text(), `"order": "poison `)
		form := edit.form()
		for wrong, says := range map[string]string{"{": "not any more: unexpected end of JSON input.", "": "The payload is empty."} {
			form.Set("payload", wrong)
			form.Set("reason", "a wrong order")
			a := b.post("edit", form)
			require.Equal(t, http.StatusUnprocessableEntity, a.status)
			require.Contains(t, a.text(), says)
		}
		form.Set("payload", "{\r\n\"order\": \"mended\"\r\n}")
		form.Del("reason")
		require.Equal(t, http.StatusUnprocessableEntity, b.post("edit", form).status, "no reason")
		require.Len(t, b.page("dead?box="+box).links("letter?"), 1, "nothing was changed")
		form.Set("reason", "a wrong order")
		require.Contains(t, b.post("edit", form).text(), "1 dead letter was replayed.")
		require.Contains(t, b.page("audit?box="+box).text(), "ann@example.com edit")
		require.Equal(t, http.StatusNotFound, b.post("edit", form).status, "somebody was faster")
	}
	s.Drain()
	require.Equal(t, []string{"mended", "mended"}, s.orders)
	_, err := s.DB.ExecContext(t.Context(), deadMessages, 1)
	require.NoError(t, err)
	_, err = s.DB.ExecContext(t.Context(), `UPDATE inbox_dead SET payload = '\xff00'`)
	require.NoError(t, err)
	letter := b.page(b.page("dead?box=inbox").links("letter?")[0])
	require.Contains(t, b.get(letter.links("edit?")[0]).text(), "This payload cannot be edited here")
	require.Contains(t, letter.text(), "ff 00")
}

// A letter says how many wait behind it and names them, the list offers to edit it, and after the edit its life still says that it was dead, who changed it
// and why, and where the former payload stands.
func TestALetterHasItsQueueAndItsHistory(t *testing.T) {
	s := newShop(t)
	s.killedEvents(1)
	s.killedMessages(1)
	b := s.serve(s.config())
	for box, order := range map[string]string{"outbox": "poison event 0", "inbox": "poison message 0 "} {
		letter := b.page("dead?box=" + box).links("letter?")[0]
		require.Contains(t, b.page(letter).text(), "behind it Nothing waits yet.")
		for range 11 {
			s.place(order)
		}
		s.DrainFailing()
		behind := b.page(letter)
		require.Contains(t, behind.text(), "behind it 11 events or messages wait for it, the first: order.placed")
		require.Len(t, behind.links("event?"), 11, "ten of them, and the letter")
		require.Contains(t, b.page(behind.links("event?")[0]).text(), "waiting")
		require.Empty(t, b.as("bob", "read").page("dead?box="+box).links("edit?"))
		form := b.page(b.page("dead?box=" + box).links("edit?")[0]).form()
		form.Set("payload", `{"order": "mended"}`)
		form.Set("reason", "an order without a number")
		life := b.page(b.post("edit", form).links("event?")[0]).text()
		require.Regexp(t, `before \d\d:\d\d:\d\d\.\d{3} .*dead its time and its error are not kept after the decision`, life)
		where := map[string]string{"outbox": "the former payload is not kept", "inbox": "the former payload is the recorded one, in the outbox"}
		require.Contains(t, life, "decided edit, by ann@example.com, because an order without a number, "+where[box])
	}
	s.Drain()
	require.Len(t, s.orders, 24)
}

func TestTheSelectedAreDiscardedAndTheOthersStay(t *testing.T) {
	s := newShop(t)
	s.killedEvents(3)
	b := s.serve(s.config())
	list := b.page("dead")
	form := list.form()
	form["ref"], form["action"] = form["ref"][:2], []string{"discard"}
	confirm := b.post("confirm", form)
	require.Contains(t, confirm.text(), "2 dead letters")
	require.Len(t, b.page("dead").links("letter?"), 3, "nothing was changed yet")
	form = confirm.form()
	form.Set("reason", "test data")
	require.Contains(t, b.post("act", form).text(), "2 dead letters were discarded.")
	require.Len(t, b.page("dead").links("letter?"), 1)
	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, entries, 3, "with that of the set-up")
	require.Equal(t, []string{"ann@example.com", "discard", "test data"}, []string{entries[0].Actor, string(entries[0].Action), entries[0].Reason})

	form.Del("ref")
	require.Equal(t, http.StatusUnprocessableEntity, b.post("confirm", form).status, "nothing is selected")
	form.Set("ref", "box=outbox&id=7")
	require.Equal(t, http.StatusBadRequest, b.post("act", form).status)
}

func TestAFilterIsReplayedAfterACount(t *testing.T) {
	s := newShop(t)
	_, err := s.DB.ExecContext(t.Context(), deadMessages, 25)
	require.NoError(t, err)
	_, err = s.DB.ExecContext(t.Context(), "UPDATE inbox_dead SET error_message = 'other' WHERE seq > 20")
	require.NoError(t, err)
	b := s.serve(s.config())
	dry := b.page(b.page("dead?box=inbox&error=no").links("bulk?")[0])
	require.Contains(t, dry.text(), "20 dead letters match. Nothing has been changed yet.")
	require.Len(t, b.page("dead?box=inbox").links("letter?"), 25, "a dry run changes nothing")
	form := dry.form()
	require.Equal(t, []string{"100"}, form["rate"])
	for field, values := range map[string][]string{"rate": {"", "-1", "many"}, "reason": {" ", strings.Repeat("x", 3000)}, "counted": {"19"}} {
		for _, value := range values {
			wrong := url.Values{}
			for name := range form {
				wrong.Set(name, form.Get(name))
			}
			wrong.Set("reason", "mended")
			wrong.Set(field, value)
			a := b.post("bulk", wrong)
			require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s %q: %s", field, value, a.text())
			require.Len(t, b.page("dead?box=inbox").links("letter?"), 25)
		}
	}
	form.Set("reason", "mended")
	form.Set("rate", "10")
	a := b.post("bulk", form)
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.text(), "10 of 20", "ten in a second are ten in a transaction")
	require.Contains(t, a.text(), "20 replayed. The work is done.")
	require.Len(t, b.page("dead?box=inbox").links("letter?"), 5, "the others stay")
	entries, err := s.App.Inbox.Audit(t.Context(), operator.AuditFilter{}, nil, 100)
	require.NoError(t, err)
	require.Len(t, entries, 20)
	require.Equal(t, "ann@example.com", entries[0].Actor)
	require.Equal(t, http.StatusUnprocessableEntity, b.post("bulk", form).status, "nothing matches any more")
}

// A producer has given one id to several events, and they are dead. A link with that id leads to a list of them.
func TestAnIDOfSeveralDeadLettersLeadsToAList(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.killedEvents(2)
	_, err := s.DB.ExecContext(t.Context(), "UPDATE outbox_dead SET id = '0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e'")
	require.NoError(t, err)
	list := b.page("letter?box=outbox&id=0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e&tenant=default")
	require.Contains(t, list.at, "/dead?")
	require.Contains(t, list.text(), "2 rows")
}
