package inbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

func TestDecisionAboutAFailedMessage(t *testing.T) {
	p := RetryPolicy{
		Tries: 3, Policy: retry.Policy{Delay: 5 * time.Second, MaxDelay: time.Minute}, GiveUpAfter: time.Hour, MaxAttempts: 10, MaxCrashes: 10,
		DeployWait: 24 * time.Hour,
	}
	endless := p
	endless.GiveUpAfter, endless.MaxAttempts, endless.DeployWait = -1, -1, -1
	failed, unknown := errors.New("no"), fmt.Errorf("read: %w", event.ErrUnknownType)
	for name, c := range map[string]struct {
		policy RetryPolicy
		failure
		want decision
	}{
		"not counted yet":                         {p, failure{cause: failed}, tryHere},
		"the last try but one here":               {p, failure{cause: failed, tries: 2}, tryHere},
		"the last try here":                       {p, failure{cause: failed, tries: 3}, tryLater},
		"it asks for a pause that is too long":    {p, failure{cause: messaging.RetryAfter(5*time.Second, failed), tries: 1}, tryLater},
		"it asks for a short pause":               {p, failure{cause: messaging.RetryAfter(time.Second, failed), tries: 1}, tryHere},
		"the last attempt":                        {p, failure{cause: failed, tries: 10}, giveUp},
		"attempts without end":                    {endless, failure{cause: failed, tries: 1000, failing: 1000 * time.Hour}, tryLater},
		"it has failed for too long":              {p, failure{cause: failed, tries: 4, failing: time.Hour}, giveUp},
		"permanent":                               {p, failure{cause: messaging.Permanent(failed)}, giveUp},
		"erased":                                  {endless, failure{cause: fmt.Errorf("open: %w", event.ErrErased)}, giveUp},
		"not decoded":                             {p, failure{cause: &event.DecodeError{}}, giveUp},
		"unknown":                                 {p, failure{cause: unknown}, awaitBuild},
		"unknown, after the last attempt":         {p, failure{cause: unknown, tries: 10, failing: 2 * time.Hour}, awaitBuild},
		"unknown for too long":                    {p, failure{cause: unknown, tries: 1, unknown: 24 * time.Hour}, giveUp},
		"unknown, and builds may take any time":   {endless, failure{cause: unknown, unknown: 1000 * time.Hour}, awaitBuild},
		"unknown, and the handler gives up on it": {p, failure{cause: messaging.Permanent(unknown)}, giveUp},
	} {
		require.Equal(t, c.want, c.policy.decide(c.failure), name)
	}
}
