package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// If a system that a handler needs is down, the page shows one row with one button for it, and lists each message only on further pages.
func TestOneCauseIsOneRow(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("").text(), "There is no dead letter, and nothing that failed is tried again.")
	const many = 60
	s.failing.Store(true)
	for n := range many {
		s.place(fmt.Sprint("o-", n))
	}
	s.DrainFailing()
	s.failing.Store(false)

	first := b.page("")
	require.Regexp(t, `billing: 60.keys fail, not now .*, since \d\d:\d\d, next try in`, first.text())
	require.Contains(t, first.text(), "runs, keys fail")
	require.Contains(t, first.text(), "goes on", "the last errors have what goes on")
	require.NotContains(t, first.text(), "There is no dead letter")

	stuck := b.page("stuck")
	require.Contains(t, stuck.text(), "60 things are stuck, for 1 reason.")
	require.Contains(t, stuck.text(), "60 keys fail")
	require.Contains(t, stuck.text(), "for example: not now "+hostile, "a cause leaves out what is quoted")
	require.Empty(t, stuck.links("decide?"))
	each := b.page(stuck.links("failure?")[0])
	require.Len(t, each.links("decide?action=retry"), 50)
	require.Contains(t, each.text(), "60 keys fail next try in")
	require.Contains(t, each.text(), "1 to 50 of 60")
	next := each.links("failure?after=")
	require.Len(t, b.page(next[len(next)-1]).links("decide?action=retry"), 10)
	require.Equal(t, http.StatusBadRequest, b.get(strings.Replace(next[len(next)-1], "after=", "after=x", 1)).status)
	require.Empty(t, b.as("bob", "read").page("stuck").links("bulk?"), "bob may look only")

	ask := b.page(stuck.links("bulk?action=retry")[0])
	require.Contains(t, ask.text(), "60 messages that failed match.")
	form := ask.form()
	require.Equal(t, http.StatusUnprocessableEntity, b.post("bulk", form).status, "a reason is missing")
	form.Set("reason", "the bank is open")
	form.Set("rate", "0")
	require.Contains(t, b.post("bulk", form).text(), "60 retried. The work is done.")
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
