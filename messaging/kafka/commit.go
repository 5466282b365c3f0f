package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
)

// commitOn commits every Config.CommitInterval until the receiver is closed.
func (r *receiver) commitOn() {
	ctx := quietlog.Away(r.broker.open, quietlog.Broker)
	ticker := time.NewTicker(r.broker.cfg.CommitInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.markSoon:
		case <-r.left:
			return
		}
		limit, cancel := context.WithTimeout(ctx, r.broker.cfg.OperationTimeout)
		err := r.commit(limit, nil)
		cancel()
		if err != nil && !isMoving(err) {
			r.broker.log.WarnContext(ctx, "oncebox: the offsets of settled messages were not committed; a later commit includes them",
				"topic", r.full, "group", r.group, "error", err)
		}
	}
}

// isMoving reports whether a commit was refused because the group gives its partitions out anew. What was not committed by then comes again.
func isMoving(err error) bool {
	return errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID) ||
		errors.Is(err, context.Canceled)
}

// commit commits the watermarks of these accounts, or of all, where they have changed. It never commits more than what was settled here. So a commit
// that comes late, when a partition belongs to another consumer already, moves the offset back at most.
func (r *receiver) commit(ctx context.Context, accounts map[int32]*account) error {
	r.committing.Lock()
	defer r.committing.Unlock()
	offsets, commits, is := r.uncommitted(accounts)
	if len(offsets) == 0 {
		return nil
	}
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		metadata := is.Metadata()
		for i := range req.Topics {
			for j := range req.Topics[i].Partitions {
				req.Topics[i].Partitions[j].Metadata = &metadata
			}
		}
		return nil
	})
	var failed error
	done := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = refusal(resp, err)
	}
	r.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{r.full: offsets}, done)
	if failed != nil {
		return fmt.Errorf("commit: %w", failed)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for a, offset := range commits {
		a.committed = offset
	}
	if !r.isMarked {
		r.isMarked = true
		close(r.marked)
	}
	return nil
}

// refusal returns the error of a commit, or of its first partition with one.
func refusal(resp *kmsg.OffsetCommitResponse, err error) error {
	if err != nil || resp == nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

// uncommitted returns the watermarks that have changed.
func (r *receiver) uncommitted(accounts map[int32]*account) (offsets map[int32]kgo.EpochOffset, commits map[*account]int64, is topics.Owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if accounts == nil {
		accounts = r.accounts
	}
	offsets, commits = map[int32]kgo.EpochOffset{}, map[*account]int64{}
	for p, a := range accounts {
		if mark := a.watermark(); !a.gone && mark.offset >= 0 && mark.offset != a.committed {
			offsets[p] = kgo.EpochOffset{Epoch: mark.epoch, Offset: mark.offset}
			commits[a] = mark.offset
		}
	}
	return offsets, commits, r.owner
}

// awaitMark waits until a commit has marked the subscription with its owner. A consumer that gets no partition cannot; then the mark is made later, by the
// next consumer of the service.
func (r *receiver) awaitMark(ctx context.Context) {
	timer := time.NewTimer(r.broker.cfg.OperationTimeout)
	defer timer.Stop()
	select {
	case <-r.marked:
	case <-timer.C:
	case <-r.closed:
	case <-ctx.Done():
	}
}
