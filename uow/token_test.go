package uow_test

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// named are the payloads of the events that a token names, as the sink saw them.
func (s *service) named(t *testing.T, token uow.Token, topics ...string) (names []string) {
	t.Helper()
	events, err := token.Events(topics...)
	require.NoError(t, err)
	for _, a := range events {
		require.Equal(t, "test", a.Source)
		require.Equal(t, "acme", a.TenantID)
		for _, e := range s.sink.envelopes {
			if e.ID == a.ID {
				require.Equal(t, e.Topic, a.Topic)
				names = append(names, line(e))
			}
		}
	}
	return names
}

func TestTokenNamesTheLastEventOfEachKey(t *testing.T) {
	s := newService(t, nil)
	ctx := event.WithTenant(t.Context(), "acme")
	var token uow.Token
	require.NoError(t, s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one", "two"), newAccount("b", "three"))
		require.NoError(t, u.Add("reports", changed{"four"}))
		require.NoError(t, u.Add("reports", changed{"five"}))
		require.NoError(t, u.Add("mails", changed{"six"}, event.WithOrderingKey("k")))
		require.NoError(t, u.Add("reports", changed{"seven"}, event.WithOrderingKey("k")))
		var inner uow.Token
		defer func() { require.Empty(t, inner, "of a savepoint") }()
		return s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			return u.Add("mails", changed{"eight"}, event.WithOrderingKey("k"))
		}, uow.WithToken(&inner))
	}, uow.WithToken(&token)))
	require.ElementsMatch(t, []string{
		"account a v2 two", "account b v1 three", "reports four", "reports five", "reports seven", "mails eight",
	}, s.named(t, token))
	require.ElementsMatch(t, []string{"reports four", "reports five", "reports seven"}, s.named(t, token, "reports"))
	require.Empty(t, s.named(t, token, "nothing"))
	require.Regexp(t, "^[A-Za-z0-9_-]+$", string(token), "fits into a header")
}

func TestTokenDoesNotNameWhatIsDelayed(t *testing.T) {
	s := newService(t, nil)
	var token uow.Token
	later := event.WithNotBefore(time.Now().Add(time.Hour))
	require.NoError(t, s.units.Do(event.WithTenant(t.Context(), "acme"), func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one"))
		return errors.Join(
			u.Add("account", changed{"reminder"}, event.WithAggregate("account", "a", 0), later),
			u.Add("reports", changed{"two"}), u.Add("reports", changed{"delayed"}, event.WithDelay(time.Hour)), u.Add("reports", changed{"three"}),
			u.Add("reports", changed{"four"}, event.WithOrderingKey("k")), u.Add("reports", changed{"delayed"}, event.WithOrderingKey("k"), later),
			u.Add("mails", changed{"behind it"}, event.WithOrderingKey("k")),
		)
	}, uow.WithToken(&token)))
	require.ElementsMatch(t, []string{"account a v1 one", "reports two", "reports three", "reports four"}, s.named(t, token))

	token = "as it was"
	require.NoError(t, s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("reports", changed{"delayed"}, later) },
		uow.WithToken(&token)))
	require.Empty(t, token)
}

func TestTokenOfWhatIsNotCommitted(t *testing.T) {
	s := newService(t, nil)
	token := uow.Token("as it was")
	require.ErrorIs(t, s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		u.Track(newAccount("a", "one"))
		return errRefused
	}, uow.WithToken(&token)), errRefused)
	require.NoError(t, s.units.Do(t.Context(), func(context.Context, *uow.Unit) error { return nil }, uow.WithToken(&token)))
	require.EqualValues(t, "as it was", token)
	_, err := token.Events()
	require.ErrorIs(t, err, event.ErrInvalid)
}

func TestTokenOfBegin(t *testing.T) {
	s := newService(t, nil)
	var token uow.Token
	tx, err := s.units.Begin(event.WithTenant(t.Context(), "acme"), uow.WithToken(&token))
	require.NoError(t, err)
	tx.Track(newAccount("a", "one"))
	// A hook may hand it on.
	var seen uow.Token
	tx.AfterCommit(func(context.Context) { seen = token })
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"account a v1 one"}, s.named(t, token))
	require.Equal(t, token, seen)
}

// An event that repeats one of an earlier unit has that one's id. The earlier event was handled, which says nothing
// about the events before it in this unit.
func TestTokenOfARepeatedEvent(t *testing.T) {
	s := newService(t, nil)
	var token uow.Token
	require.NoError(t, s.units.Do(event.WithTenant(t.Context(), "acme"), func(_ context.Context, u *uow.Unit) error {
		require.NoError(t, u.Add("reports", changed{"one"}, event.WithOrderingKey("k")))
		require.NoError(t, u.Add("reports", changed{"two"}, event.WithOrderingKey("k")))
		return u.Add("reports", changed{"three"}, event.WithOrderingKey("k"), event.WithDedupKey("monthly"))
	}, uow.WithToken(&token)))
	require.ElementsMatch(t, []string{"reports two", "reports three"}, s.named(t, token))
}

// A token that a client made up is refused before it reaches a statement.
func TestTokenThatWasMadeUp(t *testing.T) {
	for _, text := range []string{
		`7`, `[7]`, `[{"s":"a\u0000","t":"acme","o":"reports","i":["1"]}]`, `[{"s":"a","t":"acme","o":"reports","i":["\u0000"]}]`,
		`[{"s":"a","t":"acme","i":["1"]}]`, `[{"s":"a","t":"acme","o":"reports","i":[""]}]`,
	} {
		events, err := uow.Token(base64.RawURLEncoding.EncodeToString([]byte(text))).Events()
		require.ErrorIs(t, err, event.ErrInvalid, text)
		require.Empty(t, events)
	}
}
