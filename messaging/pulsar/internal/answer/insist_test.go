package answer_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// A broker that has just started fails now and then.
func TestNoIsAnAnswer(t *testing.T) {
	calls := 0
	err := answer.Clear(t.Context(), func() error {
		if calls++; calls < 3 {
			return []error{errors.New("EOF"), &answer.AdminError{Status: 500}}[calls-1]
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 3, calls)
	require.Error(t, answer.Clear(t.Context(), func() error { calls++; return &answer.AdminError{Status: http.StatusNotFound} }))
	require.Equal(t, 4, calls, "no is an answer")
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorContains(t, answer.Clear(ctx, func() error { cancel(); return errors.New("EOF") }), "EOF")
}
