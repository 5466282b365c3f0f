package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

// An action that loses something needs a reason, and every action needs an actor who can be stored.
func TestByNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for action, why := range map[operator.Action]string{
		operator.Replay: "", operator.Retry: "", operator.Reschedule: "", operator.Resume: "", operator.Move: "",
		operator.Discard: "what is deleted cannot be brought back", operator.Cancel: "what is deleted cannot be brought back",
		operator.Expire: "what is deleted cannot be brought back",
		operator.Edit:   "the old payload cannot be brought back", operator.GiveUp: "wait until the dead letter", operator.Pause: "who find it paused",
		operator.TakeOwnership: "another deployment publishes", operator.Retention: "for a different time",
	} {
		require.ErrorContains(t, operator.By{Actor: " ", Reason: "r"}.Validate(action), "By.Actor is empty", action)
		require.ErrorIs(t, operator.By{Actor: "a\x00", Reason: "r"}.Validate(action), event.ErrInvalid, action)
		require.NoError(t, operator.By{Actor: "ann", Reason: "r"}.Validate(action), action)
		err := operator.By{Actor: "ann", Reason: " "}.Validate(action)
		if why == "" {
			require.NoError(t, err, action)
			continue
		}
		require.ErrorContains(t, err, why, action)
	}
}

func TestDeadFilterNamesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	require.NoError(t, operator.DeadFilter{}.Validate())
	now := time.Now()
	for field, f := range map[string]operator.DeadFilter{
		"Consumer": {Consumer: "a\n"}, "TenantID": {TenantID: "a\n"}, "Topic": {Topic: "a\n"}, "Type": {Type: "a\n"}, "ID": {ID: "1"},
	} {
		require.ErrorIs(t, f.Validate(), event.ErrInvalid, field)
		require.ErrorContains(t, f.Validate(), "DeadFilter."+field)
	}
	require.ErrorContains(t, operator.DeadFilter{DiedFrom: now, DiedBefore: now}.Validate(), "DeadFilter.DiedFrom")
}
