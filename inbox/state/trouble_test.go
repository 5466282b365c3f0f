package state_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/state"
)

// The alert and the finding that a consumer is behind have one rule.
func TestTheAlertHasTheSameRule(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../docs/alerts/oncebox.rules.yml")
	require.NoError(t, err)
	alert := regexp.MustCompile(`(?s)- alert: OnceboxConsumerBehind\n.*?labels:`).FindString(string(rules))
	require.Contains(t, alert, fmt.Sprintf("(oncebox_inbox_backlog) > %d or", state.Many))
	require.Contains(t, alert, fmt.Sprintf("for: %dm\n", int(state.AlertedAfter.Minutes())))
}
