package messaging_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func TestPermanent(t *testing.T) {
	cause := errors.New("no such customer")
	err := fmt.Errorf("handle: %w", messaging.Permanent(cause))
	require.True(t, messaging.IsPermanent(err))
	require.ErrorIs(t, err, cause)
	require.Equal(t, "handle: no such customer", err.Error())

	require.NoError(t, messaging.Permanent(nil))
	require.False(t, messaging.IsPermanent(cause))
	require.False(t, messaging.IsPermanent(nil))
}

func TestRetryAfter(t *testing.T) {
	cause := errors.New("busy")
	err := fmt.Errorf("handle: %w", messaging.RetryAfter(time.Minute, cause))
	d, ok := messaging.RetryDelay(err)
	require.True(t, ok)
	require.Equal(t, time.Minute, d)
	require.ErrorIs(t, err, cause)

	require.NoError(t, messaging.RetryAfter(time.Minute, nil))
	_, ok = messaging.RetryDelay(cause)
	require.False(t, ok)
}

func TestPublishErrorNamesTheFirst(t *testing.T) {
	err := &messaging.PublishError{Failed: map[int]error{7: messaging.ErrBehind, 3: messaging.ErrUnknown}}
	require.ErrorContains(t, err, "2 messages")
	require.ErrorContains(t, err, "index 3: "+messaging.ErrUnknown.Error())
	require.ErrorIs(t, err, messaging.ErrBehind)
}
