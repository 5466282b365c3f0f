package uow_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/uow"
)

func TestConfigValidate(t *testing.T) {
	require.NoError(t, (*uow.Config)(nil).Validate())
	require.NoError(t, (&uow.Config{}).Validate())
	require.NoError(t, (&uow.Config{MaxPayload: -1, MaxHandled: -1, Retry: uow.RetryConfig{MaxAttempts: -1}}).Validate(), "-1 is off")

	bad := &uow.Config{
		Source: "a\x00", TopicPrefix: strings.Repeat("x", 256), DefaultTenantID: "\xff", MaxPayload: -2, MaxHandled: -2, CommitTimeout: -1,
		Retry: uow.RetryConfig{MaxAttempts: -2, Policy: retry.Policy{Delay: -1, MaxDelay: -1}},
	}
	err := bad.Validate()
	require.ErrorIs(t, err, event.ErrInvalid)
	require.Equal(t, []string{
		"uow: Config.MaxPayload is -2: give bytes, or -1 for no limit",
		"uow: Config.MaxHandled is -2: give a count, or -1 for no limit",
		"uow: Config.Retry.MaxAttempts is -2: give a count, or -1 for none",
		"uow: Config.Retry.Delay is -1ns: give a duration",
		"uow: Config.Retry.MaxDelay is -1ns: give a duration",
		"uow: Config.CommitTimeout is -1ns: give a duration",
		"event: uow: Config.Source contains a NUL or another control character",
		"event: uow: Config.DefaultTenantID is not valid UTF-8",
		"event: uow: Config.TopicPrefix has 256 bytes, at most 255 are allowed",
	}, strings.Split(err.Error(), "\n"), "all of them, and each names its field")
}
