package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/presence"
)

// marker sends the forms of the page of one cause.
type marker struct {
	*browser

	page, cause string // its address and its fingerprint
}

// mark sends a form with the token that the page shows.
func (m *marker) mark(action string, more url.Values) answer {
	m.t.Helper()
	form := url.Values{"token": m.browser.page(m.page).form()["token"][:1], "action": {action}, "cause": {m.cause}}
	maps.Copy(form, more)
	return m.post("failure", form)
}

// failingKeys has n ordering keys whose messages fail for one cause. It returns the page of the cause.
func (s *shop) failingKeys(b *browser, from, to int) *marker {
	s.t.Helper()
	s.failing.Store(true)
	for n := from; n < to; n++ {
		s.place(fmt.Sprint("o-", n))
	}
	s.DrainFailing()
	s.failing.Store(false)
	page := b.page("stuck").links("failure?")[0]
	q, err := url.ParseQuery(page[len("failure?"):])
	require.NoError(s.t, err)
	return &marker{b, page, q.Get("cause")}
}

// An operator writes a note about a cause and archives it. It is out of the lists until something new fails for it.
func TestCauseIsNotedAndArchived(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	m := s.failingKeys(b, 0, 3)
	require.Contains(t, b.page(m.page).text(), "Nobody wrote a note.")
	// Which process failed, and when the messages are given up.
	process := presence.Signature()
	name, _, _ := strings.Cut(process, " ")
	for _, statement := range []string{
		`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, seen_until, max_attempts)
			VALUES ('billing', 'order', '00000000-0000-0000-0000-000000000001', '` + name + `', 'CONNECTED', now(), 0, now() + interval '1 hour', 20)`,
		`INSERT INTO oncebox_process (process, name, host, service, version, library, parts, relay, reporter, broker, seen_until)
			SELECT gen_random_uuid(), n, 'vm', 'shop', '', '', 'consumers', '',
				CASE WHEN n <> 'other-1' THEN '00000000-0000-0000-0000-000000000001'::uuid END, '', now() + interval '1 hour'
				FROM unnest(ARRAY['` + name + `', 'other-1']) n`,
	} {
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.Regexp(t, `Failed last in `+regexp.QuoteMeta(process)+` The latest try \d+ of 20, then dead letter`, b.page(m.page).text())
	require.Contains(t, b.page("failures").text(), "of 20, then dead letter")
	require.Regexp(t, `the latest: try \d+ of 20, then dead letter; next .* failed last in `+regexp.QuoteMeta(process), b.page("stuck").text())
	list := b.page("processes")
	require.Regexp(t, regexp.QuoteMeta(name)+" shop messages fail .* billing: not now", list.text())
	require.Contains(t, list.text(), "other-1 shop runs")
	require.Equal(t, []string{m.page}, list.links("failure?"))
	_, err := s.DB.ExecContext(t.Context(), "DELETE FROM inbox_process; DELETE FROM oncebox_process")
	require.NoError(t, err)
	require.Contains(t, b.page(m.page).body, `http-equiv="refresh"`, "it loads itself again")
	require.NotContains(t, b.page(m.page+"&form=note").body, `http-equiv="refresh"`, "what is typed would be lost")
	require.Contains(t, m.mark("note", url.Values{"note": {"restarts at 02:30 " + hostile}}).text(), "The note is stored.")
	for _, page := range []string{m.page, "stuck", "failures", ""} {
		require.Contains(t, b.page(page).text(), "restarts at 02:30 "+hostile, page)
		require.NotContains(t, b.page(page).body, "<script", page)
	}
	require.Contains(t, b.page("stuck").text(), "ann@example.com noted: restarts")

	require.Equal(t, http.StatusBadRequest, m.mark("nothing", nil).status)
	wrong := m.mark("archive", nil)
	require.Equal(t, http.StatusUnprocessableEntity, wrong.status, "a reason is missing")
	require.Contains(t, wrong.text(), "Say why")
	require.Equal(t, http.StatusConflict, m.mark("unarchive", nil).status, "it is not archived")
	require.Contains(t, m.mark("archive", url.Values{"reason": {"known"}}).text(), "It comes back with the next failure.")

	stuck := b.page("stuck").text()
	require.Contains(t, stuck, "Nothing is stuck.")
	require.Contains(t, stuck, "1 cause is archived and left out")
	require.NotContains(t, b.page("stuck?each=1&step=charge").text(), "archived", "a list of requests leaves out none")
	require.NotContains(t, b.page("").text(), "keys fail,")
	require.Contains(t, b.page("failures").text(), "Nothing fails.")
	require.Len(t, b.page("failures?show=archived").links("failure?"), 1)
	require.Contains(t, b.page("failures?show=archived").text(), "archived by ann@example.com: known")

	s.failingKeys(b, 9, 10)
	require.Contains(t, b.page("stuck").text(), "archived before by ann@example.com: known; ann@example.com noted: restarts")
	require.Contains(t, b.page(m.page).text(), "and something failed since.")
	require.Equal(t, http.StatusOK, m.mark("archive", url.Values{"reason": {"known"}}).status)
	require.Contains(t, m.mark("unarchive", nil).text(), "The cause is in the lists again.")
	require.Contains(t, b.page("stuck").text(), "4 ordering keys fail")
	require.Regexp(t, "What was said about it .* unarchive .* archive .* known", b.page(m.page).text())
	gone := b.page("failure?cause=0")
	require.Contains(t, gone.text(), "Nothing of this type fails for this cause any more.", "a bookmark, say")
	require.Contains(t, gone.at, "/failures?")
	require.NotContains(t, b.page("failures").text(), "any more")
	form := url.Values{"token": b.page(m.page).form()["token"][:1], "cause": {"0"}, "reason": {"known"}}
	for _, action := range []string{"note", "archive"} {
		form.Set("action", action)
		require.Equal(t, http.StatusConflict, b.post("failure", form).status)
	}
	form.Set("reason", "")
	require.Equal(t, http.StatusConflict, b.post("failure", form).status)
}

// Only an actor who may act, with a token of its own and from this site, says something about a cause.
func TestCauseIsMarkedByThoseWhoMayAct(t *testing.T) {
	s := newShop(t)
	cfg := s.config()
	cfg.Secret = []byte(strings.Repeat("secret ", 5)) // the tokens hold at another page, too
	b := s.serve(cfg)
	m := s.failingKeys(b, 0, 1)
	bob := b.as("bob", "read").page(m.page + "&form=archive")
	require.Empty(t, append(bob.links("bulk?"), bob.links("decide?")...), "bob may look only")
	require.Empty(t, bob.form(), "and gets no form")
	form := b.page(m.page + "&form=archive").form()
	form.Set("reason", "known")
	require.Equal(t, "archive", form.Get("action"))
	require.Equal(t, http.StatusForbidden, b.as("ann@example.com", "read").post("failure", form).status, "ann has lost the right since")
	require.Equal(t, http.StatusForbidden, b.as("eve", "read,act").post("failure", form).status, "the token is ann's")
	require.Equal(t, http.StatusForbidden, b.as("", "").get(m.page).status)
	elsewhere := *b
	elsewhere.headers = map[string]string{"Sec-Fetch-Site": "cross-site"}
	require.Equal(t, http.StatusForbidden, elsewhere.post("failure", form).status)
	cfg.ReadOnly = true
	require.Equal(t, http.StatusForbidden, s.serve(cfg).post("failure", form).status)
	require.Len(t, b.page("failures").links("failure?"), 1, "nothing was archived")
	require.Equal(t, http.StatusOK, b.post("failure", form).status)
	require.Len(t, b.page("failures?show=archived").links("failure?"), 1)
}

// Dead letters are grouped by cause, and a cause selects its letters.
func TestDeadLettersOfOneCause(t *testing.T) {
	s := newShop(t)
	s.killedMessages(2)
	s.killedEvents(3)
	b := s.serve(s.config())
	list := b.page("failures")
	require.Len(t, list.links("failure?"), 2)
	require.Len(t, b.page("").links("failure?"), 2, "the last errors")
	require.Contains(t, list.text(), "All 2 Tried again 0 Dead 2 Archived 0")
	for _, page := range []string{"failures", ""} {
		require.Regexp(t, `no schema for order \d`, b.page(page).text(), "a real error, with its number")
		require.NotContains(t, b.page(page).text(), "no schema for order …", page)
	}
	require.Len(t, b.page(b.page("dead").links("failures?")[0]).links("failure?"), 2, "by cause")
	require.Contains(t, b.page("failures?show=failing").text(), "Nothing fails.")
	require.Equal(t, http.StatusBadRequest, b.get("failures?show="+url.QueryEscape(hostile)).status)
	for _, page := range list.links("failure?") {
		group := b.page(page)
		many, box := 3, "outbox"
		if len(group.links("dead?box=inbox&")) > 0 {
			many, box = 2, "inbox"
		}
		require.Contains(t, group.text(), fmt.Sprintf("%d dead letters", many))
		if box == "outbox" {
			require.Regexp(t, `no schema for order \d .* The failures of this cause share: no schema for order …`, group.text())
		}
		require.Len(t, group.links("bulk?action=discard"), 1)
		letters := b.page(group.links("dead?box=" + box)[0])
		require.Len(t, letters.links("letter?"), many)
		require.Regexp(t, "cause (no schema for order …|unknown currency)", letters.text())
		ask := b.page(group.links("bulk?action=replay")[0])
		require.Contains(t, ask.text(), fmt.Sprintf("%d dead letters match.", many))
		require.Regexp(t, "cause (no schema for order …|unknown currency)", ask.text())
		require.Contains(t, ask.links("failure?"), page, "back to the cause")
	}
}
