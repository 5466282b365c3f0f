package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

// consumersOfEachState are consumers as their processes and the broker have written them down.
const consumersOfEachState = `
INSERT INTO inbox_consumer (consumer, beat_at, stopped_at) VALUES
	('mailer', now(), NULL), ('mute', now(), NULL), ('resting', now(), NULL), ('partly', now(), NULL), ('printer', now(), NULL),
	('paused', now(), NULL), ('slow', now(), NULL), ('unknown', now(), NULL),
	('stored', now(), NULL), ('ended', now() - interval '1 day', now() - interval '1 day'), ('killed', now() - interval '1 day', NULL);
INSERT INTO inbox_topic (topic, consumer, subscribed, backlog, settled, connections, unattended, asked_at, stands_since) VALUES
	('order', 'mailer', true, 7, 0, 1, 0, now(), NULL), ('parcel', 'mailer', true, 30, 0, 1, 0, now(), NULL),
	('order', 'partly', true, 0, 0, 1, 0, now(), NULL),
	('order', 'printer', true, 8, 0, 0, 0, now(), now() - interval '1 hour'), ('order', 'paused', true, 2, 0, 1, 0, now(), NULL),
	('order', 'mute', true, 0, 0, 0, 0, now(), NULL), ('order', 'resting', true, 2, 0, 1, 0, now(), NULL),
	('order', 'slow', true, 5, 0, 1, 0, now(), now() - interval '1 hour'), ('order', 'unknown', true, NULL, NULL, NULL, NULL, NULL, NULL),
	('order', 'stored', true, NULL, NULL, NULL, NULL, NULL, NULL), ('order', 'ended', true, 9, 0, 0, 0, now(), now() - interval '1 day'),
	('order', 'killed', true, 10, 0, 0, 0, now(), now() - interval '1 day');
INSERT INTO inbox_pause VALUES ('resting', now() - interval '2 days', 'ann', 'smtp is down', NULL),
	('paused', now() - interval '1 hour', 'ann', 'smtp is down', now() + interval '1 hour');
INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, progress_at, error, failed_at, seen_until)
SELECT consumer, topic, gen_random_uuid(), 'host:1', state, now() - age, unsettled, now() - age, error, now(), now() + interval '1 hour' FROM (VALUES
	('mailer', 'order', 'CONNECTED', interval '0', 2, ''), ('mailer', 'parcel', 'CONNECTED', '0', 3, ''), ('partly', 'order', 'PARTLY', '1 second', 0, ''),
	('mute', 'order', 'AWAY', '1 hour', 0, ''), ('printer', 'order', 'AWAY', '1 hour', 0, 'connection refused'), ('paused', 'order', 'PAUSED', '1 hour', 0, ''),
	('resting', 'order', 'PAUSED', '2 days', 0, ''), ('slow', 'order', 'CONNECTED', '1 hour', 4, ''), ('unknown', 'order', 'CONNECTED', '1 hour', 0, ''),
	('stored', 'order', 'STORED', '1 hour', 0, '')) p(consumer, topic, state, age, unsettled, error)`

// The overview has a word for the state of each consumer, and the number of messages that wait for it at the broker.
// Findings about it stand above.
func TestConsumersOfEachStateAreShown(t *testing.T) {
	s := newShop(t)
	for _, table := range []string{"inbox_process", "inbox_topic", "inbox_consumer"} {
		_, err := s.DB.ExecContext(t.Context(), "DELETE FROM "+table)
		require.NoError(t, err)
	}
	_, err := s.DB.ExecContext(t.Context(), consumersOfEachState)
	require.NoError(t, err)
	b := s.serve(s.config())
	_, err = s.DB.ExecContext(t.Context(), `UPDATE inbox_topic SET backlog = 2712, backlog_precision = 'AT LEAST', many_since = now() - interval '4 minutes'
		WHERE topic = 'parcel'`)
	require.NoError(t, err)
	for n := range 10 {
		s.placeAt("parcel", fmt.Sprint("p-", n), event.WithTenantID([]string{"initech", "acme"}[n/8]))
	}
	s.went("inbox", "mailer", 2, 2, 600)
	text := b.page("").text()
	for _, row := range []string{
		"mailer is behind at least 2 719", "partly runs in part 0", "printer no connection 8", "paused paused by ann: smtp is down 2",
		"resting paused by ann: smtp is down 2", "mute no connection 0",
		"slow does not get on 5", "unknown runs ?", "stored runs –",
		"ended stopped 9", "killed not seen 10",
	} {
		require.Contains(t, text, row)
	}
	require.Contains(t, text, "At least: the broker counts batches")
	require.Regexp(t, "look mailer has been behind at the topic parcel since [-0-9 ]*\\d\\d:\\d\\d: at least 2 712 messages wait at the broker\\. "+
		"80 % of the events since then are of the tenant initech, which has sent about 8 of them in the last minute: "+
		"a pause of the tenant holds further ones back, and what waits at the broker is handled\\. ", text)
	require.Contains(t, b.page("").links("tenants?"), "tenants?form=pause&tenant=initech#pause")
	require.Empty(t, b.as("bob", "read").page("").links("tenants?"), "bob may look only")
	_, err = s.DB.ExecContext(t.Context(), `UPDATE inbox_topic SET backlog_precision = 'ESTIMATED', oldest_at = asked_at - interval '130 seconds'
		WHERE topic = 'parcel'`)
	require.NoError(t, err)
	timely := b.page("").text()
	require.Contains(t, timely, "mailer is behind about 2 719 late by about 2 min 10 s")
	require.Contains(t, timely, "About: the broker counts batches.")
	require.Contains(t, timely, ": about 2 712 messages wait at the broker, late by about 2 min 10 s. 80 % of the events")
	require.Regexp(t, "about 2712 messages wait at the broker, late by about 2m10s; it handles 10 a second; of", b.page("stuck").text())
	timely = b.page("consumers").text()
	require.Contains(t, timely, "At the broker about 2 719, late by about 2 min 10 s")
	require.Contains(t, timely, "It handles 10.0 messages a second, at all topics. Tenant")
	_, err = s.DB.ExecContext(t.Context(), "UPDATE inbox_topic SET backlog_precision = 'AT LEAST', oldest_at = NULL WHERE topic = 'parcel'")
	require.NoError(t, err)
	page := b.page("consumers")
	require.Contains(t, page.text(), "Who sends to the topic parcel It handles 10.0 messages a second, at all topics. "+
		"A message that comes now waits for at least 4 min 31 s. Tenant Types Events Share initech order.placed 8 80 % acme order.placed 2 20 %")
	require.Contains(t, page.text(), "It does nothing to messages that are at the broker already")
	require.Equal(t, []string{"tenants?tenant=initech", "tenants?tenant=acme"}, page.links("tenants?"))
	require.Contains(t, b.page("stuck?consumer=mailer").text(), "80 % are of the tenant initech")
	require.Regexp(t, "consumer behind .* consumer mailer topic parcel .*at least 2712 messages wait at the broker", b.page("stuck").text())
	for _, finding := range []string{
		"printer has had no connection to the broker for 1 h, and 8 messages wait at the broker: connection refused",
		"mute has had no connection to the broker for 1 h. ",
		"resting has been paused for 2 d: paused by ann: smtp is down.",
		"slow has settled nothing for 1 h, and 5 messages wait at the broker.",
		"No process has run ended for 1 d, and 9 messages wait at the broker.",
		"The processes of killed vanished 1 d ago, and 10 messages wait at the broker.",
	} {
		require.Contains(t, text, finding)
	}
	require.NotContains(t, text, "resting is paused by ann", "it is said once")

	text = b.page("consumers").text()
	for _, row := range []string{
		"printer no connection Since", "Last error connection refused,", "resting paused Since", "Until somebody resumes it By ann Why smtp is down",
		"ended stopped Since", "killed not seen Since",
	} {
		require.Contains(t, text, row)
	}
}

// A consumer is paused, resumed and forgotten on its page. Actors who may only read see the pause and no button.
func TestAConsumerIsPausedAndResumed(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.failingMessage("o-1")
	require.NoError(t, s.App.Inbox.SubscribeAll(t.Context()))
	page := b.page("consumers")
	require.Contains(t, page.text(), "Last error not now "+hostile, "text only")
	form := b.page(page.links("consumer?form=pause")[0]).form()
	require.Equal(t, []string{"billing", "pause"}, []string{form.Get("consumer"), form.Get("action")})
	require.Equal(t, http.StatusUnprocessableEntity, b.post("consumers", form).status, "a reason is missing")
	form.Set("reason", "the <b>bank</b> is down")
	form.Set("for", "soon")
	require.Contains(t, b.post("consumers", form).text(), "not a duration")
	form.Set("for", "2h")
	require.Equal(t, http.StatusForbidden, b.as("bob", "read").post("consumers", form).status)
	require.Equal(t, http.StatusForbidden, b.as("eve", "read,act").post("consumers", form).status, "the token is ann's")
	cfg := s.config()
	cfg.ReadOnly = true
	require.Contains(t, s.serve(cfg).post("consumers", form).text(), "This page is read-only")
	paused, err := s.App.Inbox.Consumers().Paused(t.Context())
	require.NoError(t, err)
	require.Empty(t, paused)

	done := b.post("consumers", form)
	require.Equal(t, http.StatusOK, done.status, done.text())
	require.Contains(t, done.text(), "The consumer is paused.")
	require.Contains(t, done.text(), "in 1 h")
	require.Contains(t, done.body, "the &lt;b&gt;bank&lt;/b&gt; is down")
	require.Contains(t, done.text(), "Consumers 1 Processes")
	again := b.post("consumers", form)
	require.Equal(t, http.StatusConflict, again.status)
	require.Contains(t, again.text(), "is paused already")
	require.Contains(t, b.page("").text(), "billing is paused by ann@example.com")
	require.Contains(t, b.page("stuck").text(), "resumes them : consumer billing ,")
	reader := b.as("bob", "read").page("consumers")
	require.Contains(t, reader.text(), "paused")
	require.NotContains(t, reader.body, "<form method=\"post\"")

	form.Set("action", "resume")
	require.Contains(t, b.post("consumers", form).text(), "The consumer is resumed.")
	require.Equal(t, http.StatusConflict, b.post("consumers", form).status)
	for _, action := range []string{"pause", "resume"} {
		form = b.page(b.page("consumer?name=billing").links("consumer?form=")[0]).form()
		require.Equal(t, action, form.Get("action"))
		form.Set("reason", "the bank again")
		own := b.post("consumers", form)
		require.Contains(t, own.at, "consumer?done="+action+"&name=billing", "the form of a consumer leads back to its page")
		require.Contains(t, own.text(), "The consumer is "+action+"d.")
	}
	form.Set("action", "burn")
	require.Contains(t, b.post("consumers", form).text(), "none of pause, resume and forget")
	_, err = s.DB.ExecContext(t.Context(), "INSERT INTO inbox_consumer (consumer, beat_at, stopped_at) VALUES ('ended', now(), now())")
	require.NoError(t, err)
	form.Set("action", "forget")
	form.Set("consumer", "ended")
	require.Contains(t, b.post("consumers", form).text(), "The consumer is forgotten.")
	require.NotContains(t, b.page("consumers").text(), "ended")
	entries, err := s.App.Inbox.Audit(t.Context(), operator.AuditFilter{}, nil, 5)
	require.NoError(t, err)
	require.Len(t, entries, 5)
	for n, action := range []operator.Action{operator.Forget, operator.Resume, operator.Pause, operator.Resume, operator.Pause} {
		require.Equal(t, []string{string(action), "ann@example.com"}, []string{string(entries[n].Action), entries[n].Actor})
	}
}

// The page of a consumer says how it is, in the words of the overview, how fast it is and what fails, and leads to what waits for it.
func TestAConsumerHasAPage(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	s.failingMessage("o-1")
	require.NoError(t, s.App.Inbox.SubscribeAll(t.Context()))
	s.killedMessages(1)
	for _, page := range []string{
		"", "consumers", "stuck", "failures", "dead?box=inbox", b.page("failures").links("failure?")[0], b.page("dead?box=inbox").links("letter?")[0],
	} {
		require.Contains(t, b.page(page).links("consumer?"), "consumer?name=billing", page)
	}
	findings, _, _ := strings.Cut(b.page("").body, `aria-label="In numbers"`)
	require.Equal(t, 2, strings.Count(findings, `href="consumer?name=billing"`), "what it gave up, and what fails")
	page := b.page("consumer?name=billing")
	require.Contains(t, page.links("stuck?"), "stuck?consumer=billing")
	require.NotEmpty(t, page.links("failure?"), "the cause of its failures")
	require.Contains(t, page.text(), "not now "+hostile)
	require.Contains(t, page.text(), "Handled not known")
	require.Contains(t, page.text(), "Pause…")
	require.Contains(t, page.links("consumer?"), "consumer?name=billing&span=24h")

	s.went("inbox", "billing", 9, 4, 120)
	s.went("inbox", "billing", 3, 0, 0)
	require.Regexp(t, `Every try fails: no message was handled since .*\d\d:\d\d`, b.page("consumer?name=billing").text())
	s.went("inbox", "billing", 3, 0, 399)
	text := b.page("consumer?name=billing").text()
	require.Contains(t, text, "1 of 400 tries failed in the last full minute.")
	require.Regexp(t, `Handled 6.7/s in the minute of \d\d:\d\d UTC: 399 messages, and 1 try failed`, text)

	require.Contains(t, b.page("consumer?name=billing").links("dead?"), "dead?box=inbox&consumer=billing")
	reader := b.as("bob", "read").page("consumer?name=billing")
	require.NotContains(t, reader.body, "<form method=\"post\"")
	require.NotContains(t, reader.text(), "Retry all")

	for _, statement := range []string{
		`UPDATE inbox_topic SET subscribed = true, backlog = 2000, backlog_precision = 'EXACT', connections = 1, unattended = 0, asked_at = now(),
			many_since = now() - interval '10 minutes' WHERE consumer = 'billing'`,
	} {
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NotContains(t, b.page("consumer?name=billing").text(), "falling")
	s.waited("inbox", "billing", 46_400, 35_300, 24_200, 13_100, 2000)
	text = b.page("consumer?name=billing").text()
	require.Contains(t, text, "At the broker 2 000, falling by about 185 a second, so nothing waits in about 10 s if it goes on like that")
	require.Contains(t, b.page("").text(), "Messages waiting 2 000 wait for consumers at the broker")
	require.Equal(t, http.StatusNotFound, b.get("consumer?name=nobody").status)
}

// Many messages are no all-clear. Before they are late, a line says that they wait, for which consumers and who sends them. When they are late, somebody
// should look. The line says since when that is, not since when the processes run.
func TestAFloodIsOneLine(t *testing.T) {
	s := newShop(t)
	exec := func(statement string) {
		t.Helper()
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, table := range []string{"inbox_process", "inbox_topic", "inbox_consumer"} {
		exec("DELETE FROM " + table)
	}
	exec(`INSERT INTO inbox_consumer (consumer, beat_at) SELECT c, now() FROM unnest(ARRAY['ledger', 'mailer', 'stats']) c`)
	exec(`INSERT INTO inbox_topic (topic, consumer, subscribed, backlog, settled, connections, unattended, asked_at, oldest_at)
		SELECT 'order', c, true, 3, 0, 1, 0, now(), now() FROM unnest(ARRAY['ledger', 'mailer', 'stats']) c`)
	exec(`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, progress_at, seen_until)
		SELECT c, 'order', gen_random_uuid(), 'host:1', 'CONNECTED', now() - interval '21 minutes', 0, now(), now() + interval '1 hour'
		FROM unnest(ARRAY['ledger', 'mailer', 'stats']) c`)
	b := s.serve(s.config())
	require.Contains(t, b.page("").text(), "all is well Nothing waits for a decision.")
	require.Contains(t, b.page("consumer?name=mailer").text(), "runs since 21 min ago")

	exec(`UPDATE inbox_topic SET backlog = 18000, many_since = now() - interval '2 seconds', oldest_at = now() - interval '14 seconds', asked_at = now()`)
	for n := range 20 {
		s.placeWith(fmt.Sprint("o-", n), event.WithTenantID([]string{"initech", "acme"}[n/19]))
	}
	page := b.page("")
	require.NotContains(t, page.text(), "all is well")
	require.Regexp(t, `wait ledger , mailer , stats have had more than 1 000 messages to handle since \d\d:\d\d:\d\d: 54 000 messages wait for them at the `+
		`broker, late by about 14 s\. The slowest is ledger: 18 000 messages wait for it\. 95 % of the events since then are of the tenant initech, which `+
		`has sent about 19 of them in the last minute: a pause of the tenant holds further ones back, and what waits at the broker is handled\. `+
		`Nothing is lost`, page.text())
	require.Contains(t, page.text(), "mailer many wait 18 000")
	for _, name := range []string{"ledger", "mailer", "stats"} {
		require.Contains(t, page.links("consumer?"), "consumer?name="+name)
	}
	require.NotContains(t, b.page("consumer?name=mailer").text(), "21 min ago")

	exec(`UPDATE inbox_topic SET backlog = 12000, many_since = now() - interval '50 seconds', oldest_at = now() - interval '65 seconds', asked_at = now()`)
	for consumer, minute := range map[string]int{"ledger": 12_000, "mailer": 6000, "stats": 12_000} {
		s.waited("inbox", consumer, 12_000+4*minute, 12_000+3*minute, 12_000+2*minute, 12_000+minute, 12_000)
	}
	text := b.page("").text()
	require.Regexp(t, `look ledger , mailer , stats have been behind since \d\d:\d\d:\d\d: 36 000 messages wait for them at the broker, late by about `+
		`1 min 5 s\. The slowest is mailer: 12 000 messages wait for it, and the number is falling by about 100 a second, so nothing `+
		`waits in about 2 min if it goes on like that\. 95 % of`, text)
	require.Equal(t, 1, strings.Count(text, "look "), "it is one line")
	require.NotContains(t, text, "order.placed")
	of := b.page("consumer?name=mailer").text()
	require.Regexp(t, `is behind since (5\d s|1 min( \d+ s)?) ago`, of) // by the clock of now: a busy machine is later
	require.Regexp(t,
		`It has been behind since \d\d:\d\d:\d\d: 12 000 messages wait at the broker, late by about 1 min 5 s\. The number is falling by about 100 a`, of)

	require.NoError(t, s.App.Outbox.Tenants().Pause(t.Context(), "initech", operator.By{Actor: "ann", Reason: "an import"}))
	require.Contains(t, b.page("").text(), "of the tenant initech, which is paused: its messages at the broker are handled, and its other events wait")
	require.NotContains(t, b.page("").body, "Pause initech")
	require.NoError(t, s.App.Outbox.Tenants().Resume(t.Context(), "initech", operator.By{Actor: "ann", Reason: "done"}))
	exec("UPDATE outbox SET created_at = created_at - interval '61 seconds'")
	exec("UPDATE inbox_topic SET many_since = now() - interval '5 minutes'")
	require.Contains(t, b.page("").text(), "which has sent nothing in the last minute: a pause of the tenant changes nothing")
	for n, tenant := range []string{"initech", "acme", "globex"} {
		s.placeWith(fmt.Sprint("usual-", n), event.WithTenantID(tenant))
	}
	require.Contains(t, b.page("").text(), "which has sent only about 1 of them in the last minute: a pause of the tenant changes little")
	require.Empty(t, b.page("").links("tenants?form=pause"))
	exec("DELETE FROM outbox WHERE created_at > now() - interval '1 minute'")

	// The events of a tenant that was just resumed were recorded long before, so a share of the latest events accuses others.
	exec("UPDATE inbox_topic SET many_since = clock_timestamp(), oldest_at = clock_timestamp()")
	exec("UPDATE outbox SET created_at = created_at - interval '1 hour'")
	for n := range 20 {
		s.placeWith(fmt.Sprint("p-", n), event.WithTenantID([]string{"acme", "globex", "umbrella"}[n%3]))
	}
	text = b.page("").text()
	require.Regexp(t, `The tenant initech was resumed at \d\d:\d\d:\d\d: its events that had waited came at once\.`, text)
	require.NotContains(t, text, "of the events since then", "no tenant has half of them")
}
