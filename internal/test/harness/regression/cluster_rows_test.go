// SPDX-License-Identifier: MPL-2.0

package regression_test

func leaseRows() []row {
	return []row{
		{
			area: areaLease, seen: reviewed, test: engineTest("TestJournalIsNotWrittenOnALeaseThatRanOutMeanwhile"),
			symptom:  "The journal was written under a lease that somebody else may have held by then.",
			wrong:    "The lease was looked at before the wait for another turn that was writing, not after it.",
			scenario: "seed 59, 3+5; a write of the journal takes longer than the lease lasts",
		},
		{
			area: areaLease, seen: reviewed, test: engineTest("TestLostLeaseSpeaksForItsOwnRunOnly"),
			symptom:  "A run that had lost its lease told which nodes were in service, when another run had them in hand.",
			wrong:    "The last look of a failed run was reported whoever held the lease.",
			scenario: "seed 59, 3+5; the lease is taken over in the middle of a turn",
		},
		{
			area: areaLease, seen: "db31ed1", test: engineTest("TestSlowClusterIsStillObserved"), replay: slowMembers(),
			symptom:  "An apply of a large cluster with silent nodes failed before it began.",
			wrong:    "The first look was cut off after the 30 s that a lease lasts, which has nothing to do with it.",
			scenario: "seed 0, 3+2; the list of members takes 45 s",
		},
	}
}

func planRows() []row {
	return []row{
		{
			area: areaPlan, seen: reviewed, test: engineTest("TestNodeThatTheConfigurationNamesMayLeave"), replay: namedNodeLeaves(),
			symptom:  "A roll failed because a node was removed that canary, hold or node_overrides name.",
			wrong:    "What is an error of the configuration in a plan was one in the middle of a roll too.",
			scenario: "seed 173, 3+3; worker-0 is named and leaves",
		},
		{
			area: areaPlan, seen: "f967c1f", test: planTest("TestKubernetesOfAnotherClusterIsRefused"),
			symptom:  "A run was refused because kubeconfig and talosconfig seemed to lead to two clusters.",
			wrong:    "A node that had just rebooted has another boot ID than its Node object still tells.",
			scenario: "a node in the middle of its turn",
		},
		{
			area: areaPlan, seen: "a1dd59f", test: planTest("TestATargetBelowWhatANodeMayBootIsRefused"),
			symptom:  "Going back to a lower target was refused for ever after a node had fallen back.",
			wrong:    "An open entry of the journal was taken for something that may still boot, although the node had been through its reboot.",
			scenario: "worker-1 recorded as rebooting, with another boot ID than recorded",
		},
		{
			area: areaPlan, seen: "169d733", test: test{"health", "TestEvictionsThatFailAreForeseen"},
			symptom:  "A roll was refused for a budget without anything to give, which the roll itself would have cured.",
			wrong:    "Pods on a node that is not Ready, and that moves first, counted as missing for good.",
			scenario: "worker-2 not Ready and first in the roll, a budget that misses its pod",
		},
		{
			area: areaPlan, seen: "8ae5144", test: planTest("TestTheBudgetIsAShareOfAllWorkers"),
			symptom:  "A spent max_unavailable was explained with what does not help.",
			wrong:    "Cordoned and NotReady workers had one remedy between them.",
			scenario: "workers that are cordoned, not Ready, and some of each",
		},
		{
			area: areaPlan, seen: "f15913a", test: test{"image", "TestFactoryIsRecognisedBehindMirrors"},
			symptom:  "Clusters on Digital Ocean were told that their image is none of a factory.",
			wrong:    "The pattern of installer names had no dash in a platform.",
			scenario: "factory.talos.dev/digital-ocean-installer",
		},
	}
}

func kubernetesRows() []row {
	const synced = "afe1aed"

	return []row{
		{
			area: areaKube, seen: synced, test: engineTest("TestNewerReleaseCuresABrokenComponent"),
			symptom:  "A component that did not come up with a release kept every newer release from being tried.",
			wrong:    "The guard wanted the broken component whole before its own turn came.",
			scenario: "seed 0, 1+1; the scheduler of cp-0 crashes with 1.35.1, applied again with 1.35.2",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestSyncThatDoesNotWaitIsDoneAfterEachLeg"), replay: syncWithoutWaiting(),
			symptom:  "Bootstrap manifests were left as they were before Talos moved.",
			wrong:    "A sync of the same version of Kubernetes was done once in a run, however much had moved since.",
			scenario: "seed 0, 3+2, Talos 1.13 to 1.14 with Kubernetes 1.31 to 1.32, manifests.timeout 0",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestManifestThatNeverRendersDoesNotHoldUpTheRest"),
			symptom:  "One manifest that a control plane could not download kept all others from being synced.",
			wrong:    "An incomplete rendering was waited for without end in sight.",
			scenario: "seed 0; one manifest is never rendered, with prune and without",
		},
		{
			area: areaKube, seen: synced, test: engineTest("TestRolloutThatFlapsForEverEndsWithTheRun"),
			symptom:  "A run did not end while pods of a DaemonSet flapped.",
			wrong:    "Whatever changed counted as progress of the rollout, and progress had no deadline.",
			scenario: "seed 0; every look at the rollout shows something new",
		},
		{
			area: areaKube, seen: synced, test: test{"adapter/manifest", "TestAnIncompleteRenderIsNotTakenForAll"},
			symptom:  "Objects would have been pruned that a control plane had not rendered yet.",
			wrong:    "A rendering right after a boot was taken for all there is.",
			scenario: "a control plane that has just booted and still downloads",
		},
	}
}

func wordRows() []row {
	return []row{
		{
			area: areaWords, seen: "28cd42e", test: engineTest("TestInstallThatNeverTookIsPlannedAnew"),
			symptom:  "A node was said to be done that had only been put back into service.",
			wrong:    "A turn that leaves its node to the next plan ended like one that has moved it.",
			scenario: "seed 7, 3+2; killed on the way into the installer, applied again",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestNodeIsSaidToHaveReachedWhatItRuns"),
			symptom:  "A node was said to have reached a version that it did not run yet.",
			wrong:    "The version was the one of the plan, not the one that the node told.",
			scenario: "seed 79, 3+2, 1.11 to 1.14; killed at the last uncordon of the first hop",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestFailureNamesNodesThatAnotherTurnLeftUnfinished"),
			symptom:  "A failure said that no other node was touched while one lay half upgraded.",
			wrong:    "The error knew its own turn only.",
			scenario: "seeds 163, 167 and 53, 3+5, two at a time; worker-0 never returns",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestFailureNamesNodesThatAreNotInService"),
			symptom:  "A failure said that the nodes done so far were in service when one was not.",
			wrong:    "The error repeated what the run had meant to do instead of what the last look showed.",
			scenario: "seed 51, 3+5; the installer of worker-0 fails",
		},
		{
			area: areaWords, seen: reviewed, test: engineTest("TestFallbackIsInServiceOnlyWhenItIs"),
			symptom:  "A node that had fallen back was said to be in service although its kubelet was down.",
			wrong:    "The way back into service was taken for granted.",
			scenario: "seed 53, 3+5; worker-0 falls back and does not become Ready either",
		},
	}
}

func harnessRows() []row {
	return []row{
		{
			area: areaHarness, seen: "891faa0", test: test{"test/sim/checker", "TestTalesAreJudged"},
			symptom:  "The checker missed a second reboot of a node that ran its target.",
			wrong:    "The end of a call that is written down late was told from a second call by whether the node ran.",
			scenario: "tales \"S4: a second reboot right after the one that was needed\" and \"S4: a reboot of a node at the target that runs still when the call ends\"",
		},
	}
}
