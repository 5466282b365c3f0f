package steps_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/steps"
)

var errBroken = errors.New("broken")

func TestResultsAreLoadedUntilThatSucceeds(t *testing.T) {
	var set steps.Set
	loads := 0
	load := func(err error) func() (map[string][]byte, error) {
		return func() (map[string][]byte, error) {
			loads++
			return map[string][]byte{"paid": []byte("7")}, err
		}
	}
	require.ErrorIs(t, set.Load(load(errBroken)), errBroken)
	_, done := set.Done("paid")
	require.False(t, done)
	require.NoError(t, set.Load(load(nil)))
	require.NoError(t, set.Load(load(nil)))
	require.Equal(t, 2, loads)
	result, done := set.Done("paid")
	require.True(t, done)
	require.Equal(t, []byte("7"), result)
}

func TestNameIsFreeAgainAfterAFailure(t *testing.T) {
	var set steps.Set
	require.True(t, set.Use("pay"))
	require.False(t, set.Use("pay"))
	require.True(t, set.Use("ship"))

	require.ErrorIs(t, set.Run("pay", func() error { return errBroken }), errBroken)
	require.True(t, set.Use("pay"))
	require.Panics(t, func() { _ = set.Run("pay", func() error { panic("so") }) })
	require.True(t, set.Use("pay"))
	require.NoError(t, set.Run("pay", func() error { return nil }))
	require.False(t, set.Use("pay"), "it is done")
}

func TestNames(t *testing.T) {
	var names steps.Names
	names.Remove("a")
	require.True(t, names.IsEmpty())
	require.False(t, names.Has("a"))
	require.True(t, names.Add("a"))
	require.True(t, names.Has("a"))
	require.False(t, names.IsEmpty())
	names.Remove("a")
	require.True(t, names.IsEmpty())
}
