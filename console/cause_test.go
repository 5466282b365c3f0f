package console_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// A system that 400 handlers need is down. The first page has one line for that, and three clicks later all are tried again.
func TestAnOutageIsRetriedInThreeClicks(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("").text(), "There is no dead letter, and nothing that failed is tried again.")
	const many = 400
	s.failing.Store(true)
	require.NoError(t, s.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		for n := range many {
			order := fmt.Sprint("o-", n)
			if err := u.Add("order", orderPlaced{order}, event.WithOrderingKey(order)); err != nil {
				return err
			}
		}
		return nil
	}))
	s.DrainFailing()
	s.failing.Store(false)

	// It is found and understood.
	first := b.page("")
	require.Regexp(t, `billing: 400 ordering keys fail, not now .*, next try in`, first.text())
	require.Contains(t, first.text(), "runs, ordering keys fail")
	require.Contains(t, first.text(), "goes on", "the last errors have what goes on")
	require.NotContains(t, first.text(), "There is no dead letter")
	stuck := b.page("stuck")
	require.Contains(t, stuck.text(), "400 things are stuck, for 1 reason.")
	require.Contains(t, stuck.text(), "400 ordering keys fail")
	require.Contains(t, stuck.text(), "for example: not now "+hostile, "a cause leaves out what is quoted")
	require.Empty(t, stuck.links("decide?"))
	require.Equal(t, first.links("failure?")[0], stuck.links("failure?")[0], "both lead to the cause")
	require.Empty(t, b.as("bob", "read").page("stuck").links("bulk?"), "bob may look only")

	// The first click.
	cause := b.page(first.links("failure?")[0])
	require.Contains(t, cause.text(), "400 ordering keys fail next try in")
	require.Contains(t, cause.text(), "Nothing is lost: tries go on")
	require.Contains(t, stuck.text(), "Nothing is lost: tries go on")
	retry := cause.links("bulk?action=retry")[0]
	loud := func(a answer) bool {
		return strings.Contains(a.body, `class="button primary" href="`+html.EscapeString(retry))
	}
	require.Contains(t, cause.text(), "Retries come by themselves: no click is needed.")
	require.False(t, loud(cause), "as long as the cause lasts, the button is no use")
	s.went("inbox", "billing", 1, 0, 70)
	require.False(t, loud(b.page(first.links("failure?")[0])), "tries fail")
	_, err := s.DB.ExecContext(t.Context(), "UPDATE oncebox_history SET failed = 0")
	require.NoError(t, err)
	require.False(t, loud(b.page(first.links("failure?")[0])), "the messages have just begun to fail, and the history does not have that yet")
	_, err = s.DB.ExecContext(t.Context(), "UPDATE inbox_parked SET cause_since = cause_since - interval '3 minutes'")
	require.NoError(t, err)
	mended := b.page(first.links("failure?")[0])
	require.Contains(t, mended.text(), "The consumer handles messages again")
	require.True(t, loud(mended))
	require.Contains(t, cause.text(), "1 to 50 of 400")
	require.Len(t, cause.links("decide?action=retry"), 50)
	second := b.page(cause.links("failure?after=")[0])
	require.Contains(t, second.text(), "51 to 100 of 400")
	require.Len(t, second.links("decide?action=retry"), 50)
	require.NotEqual(t, cause.links("decide?action=retry")[0], second.links("decide?action=retry")[0])
	require.Equal(t, http.StatusBadRequest, b.get(strings.Replace(cause.links("failure?after=")[0], "after=", "after=x", 1)).status)

	// The second.
	ask := b.page(cause.links("bulk?action=retry")[0])
	require.Contains(t, ask.text(), "400 messages that failed match.")
	require.Contains(t, ask.text(), "cause not now", "and not a fingerprint")
	form := ask.form()
	require.Equal(t, http.StatusUnprocessableEntity, b.post("bulk", form).status, "a reason is missing")

	// The third.
	form.Set("reason", "the bank is open")
	form.Set("rate", "0")
	done := b.post("bulk", form)
	require.Contains(t, done.text(), "400 retried. The work is done.")
	require.Contains(t, b.page(done.links("failure?")[0]).text(), "Nothing of this type fails for this cause any more.", "back, when the cause is gone")
	s.Drain()
	require.EqualValues(t, many, s.billed.Load())
	require.Contains(t, b.page("stuck").text(), "Nothing is stuck.")
	require.Contains(t, b.page("audit").text(), "the bank is open")
	require.Equal(t, http.StatusBadRequest, b.get("confirm?action=retry").status, "it is none for dead letters")
}

// The page of dead letters opens where some are, and says how many are elsewhere.
func TestDeadLettersAreShownWhereTheyAre(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("dead").text(), "There is no dead letter. That is how it should be.")
	s.killedMessages(2)
	a := b.page("dead")
	require.Len(t, a.links("letter?"), 2)
	require.Contains(t, a.text(), "Outbox 0 Consumers 2")
	other := b.page("dead?box=outbox").text()
	require.NotContains(t, other, "There is no dead letter")
	require.Contains(t, other, "There is none in the outbox; consumers have 2.")
	s.killedEvents(1)
	require.Contains(t, b.page("dead").text(), "Outbox 1 Consumers 2")
	for _, text := range []string{b.page("").text(), b.page("dead?box=outbox&type=none").text()} {
		require.NotContains(t, text, "There is no dead letter")
	}
	require.Contains(t, b.page("dead?box=outbox&type=none").text(), "No dead letter matches.")
}

// An outage stops messages of several types. It is one line, which names them, and one button tries all of them.
func TestAnOutageOfSeveralTypesIsRetriedAtOnce(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.failing.Store(true)
	for n := range 5 {
		s.place(fmt.Sprint("o-", n))
	}
	require.Len(t, s.DrainFailing(), 5)
	s.failing.Store(false)
	_, err := s.DB.ExecContext(t.Context(), `UPDATE inbox_parked SET event_type = 'order.shipped', fingerprint = 'of another type'
		WHERE message_key IN (SELECT message_key FROM inbox_parked ORDER BY message_key LIMIT 2)`)
	require.NoError(t, err)
	// A cause with the same text that is archived is left alone.
	_, err = s.DB.ExecContext(t.Context(), `UPDATE inbox_parked SET event_type = 'order.lost', fingerprint = 'archived'
		WHERE message_key IN (SELECT message_key FROM inbox_parked ORDER BY message_key DESC LIMIT 1)`)
	require.NoError(t, err)
	require.NoError(t, s.App.Inbox.Failures().Archive(t.Context(), "archived", operator.By{Actor: "ann", Reason: "nobody needs it"}))

	first := b.page("")
	require.Regexp(t, `billing: 4 ordering keys fail, not now .* \(order\.placed, order\.shipped\), next try in`, first.text())
	require.Equal(t, 1, strings.Count(first.text(), "keys fail, not now"))
	// The page is that of all types, also of the type whose fingerprint is in the address, and a note is for all.
	page := first.links("failure?")[0]
	cause := b.page(page)
	require.Regexp(t, `consumer billing , types order\.placed, order\.shipped: 4 ordering keys fail`, cause.text())
	require.Regexp(t, `order\.(placed|shipped): 2 ordering keys fail; order\.(placed|shipped): 2 ordering keys fail`, cause.text())
	require.Contains(t, cause.text(), "Tenants default 4")
	require.Len(t, cause.links("decide?action=retry"), 4)
	shipped := b.page("failure?cause=of+another+type")
	require.Contains(t, shipped.text(), "4 ordering keys fail")
	m := &marker{b, page, cause.form().Get("cause")}
	require.Contains(t, m.mark("note", url.Values{"note": {"the bank restarts"}}).text(), "The note is stored.")
	require.Contains(t, b.page("failure?cause=of+another+type").text(), "the bank restarts")
	require.NotContains(t, b.page("failure?cause=archived").text(), "the bank restarts")
	require.Contains(t, b.page("failure?cause=archived").text(), "type order.lost: 1 ordering key fails", "an archived cause stands alone")
	ask := b.page(cause.links("bulk?")[0])
	require.Contains(t, ask.text(), "4 messages that failed match.")
	require.Len(t, ask.links("failure?cause="), 1, "back to the page")

	stuck := b.page("stuck?consumer=billing")
	require.Contains(t, stuck.links("failure?"), page)
	require.Contains(t, stuck.text(), "4 things are stuck, for 1 reason.")
	require.Contains(t, stuck.text(), "4 ordering keys fail order.placed, order.shipped")
	require.Len(t, stuck.links("bulk?"), 1)
	form := b.page(stuck.links("bulk?")[0])
	require.Contains(t, form.text(), "4 messages that failed match.")
	require.Contains(t, form.text(), "2 causes with the same text")
	fields := form.form()
	fields.Set("reason", "the bank is back")
	require.Contains(t, b.post("bulk", fields).text(), "4 retried. The work is done.")
	var left int
	require.NoError(t, s.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM inbox_key k JOIN inbox_parked p USING (consumer, key_lock)
		WHERE k.state = 'FAILED' AND p.event_type = 'order.lost'`).Scan(&left))
	require.Equal(t, 1, left)
}

// A process of an old build refuses what the new one handles. The overview and the page of the cause name both versions.
func TestAnOldBuildIsNamed(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	m := s.failingKeys(b, 0, 2)
	run := func(version string) {
		t.Helper()
		for _, statement := range []string{
			"UPDATE inbox_parked SET failed_by = 'worker-0 v1.8.0'", "DELETE FROM oncebox_process", "DELETE FROM inbox_process",
			`INSERT INTO oncebox_process (process, name, host, service, version, library, parts, relay, reporter, broker, seen_until)
				SELECT gen_random_uuid(), n, 'vm', 'shop', v, '', 'consumers', '', r::uuid, '', now() + interval '1 hour' FROM (VALUES
					('worker-0', 'v1.8.0', '00000000-0000-0000-0000-000000000001'),
					('worker-1', '` + version + `', '00000000-0000-0000-0000-000000000002')) v (n, v, r)`,
			`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, seen_until)
				SELECT 'billing', 'order', reporter, name, 'CONNECTED', now(), 0, now() + interval '1 hour' FROM oncebox_process`,
		} {
			_, err := s.DB.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	const only = "Their last tries failed only in v1.8.0 (worker-0), and none in v1.9.0 (worker-1), which runs billing, too."
	run("v1.9.0")
	require.Contains(t, b.page("").text(), "look Several versions of shop run: v1.8.0 (worker-0), v1.9.0 (worker-1). 2 ordering keys fail at billing. "+
		"An older version may refuse")
	require.Contains(t, b.page("").text(), only)
	require.Contains(t, b.page(m.page).text(), only)
	run("v1.8.0")
	for _, page := range []string{"", m.page} {
		require.NotContains(t, b.page(page).text(), "Several versions")
		require.NotContains(t, b.page(page).text(), "last tries failed only", page)
	}
}
