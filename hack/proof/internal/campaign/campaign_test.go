// SPDX-License-Identifier: Apache-2.0

//go:build unix

package campaign

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// A test that died of it would leave what it has started: the go commands, in process
// groups of their own.
func TestCampaignEnds(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			c := Begin(t, "none")
			if err := syscall.Kill(os.Getpid(), signal); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.Ctx.Done():
			case <-time.After(10 * time.Second):
				t.Error("the campaign goes on")
			}
		})
	}
}
