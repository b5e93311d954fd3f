// SPDX-License-Identifier: MPL-2.0

package regression_test

func operatorRows() []row {
	return []row{
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestOperatorAtWorkIsNotForgotten"),
			symptom:  "A node was cordoned while the operator of the cluster was seen to be at work.",
			wrong:    "One read of its object that failed counted as nothing in the way.",
			scenario: "3+2; every fourth read of the object fails after somebody set a target",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestNoNodeIsTakenBackByALegOfTheOthers"),
			symptom:  "A node that had joined at the target was taken back to an older Talos by the operator.",
			wrong:    "Nobody asked whether a node already runs more than the leg in between leads to.",
			scenario: "1.11.6 to 1.13.4 with a worker that runs 1.13.4",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestHoldThatLandsAfterACancelIsEnded"),
			symptom:  "An operator was kept from acting for ever by a run that was over.",
			wrong:    "The request that was cut off took effect after the run had looked for it.",
			scenario: "cancelled in the middle of the hold",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestSilentSecretLeavesTimeForTheRelease"),
			symptom:  "A hold was left behind by a cancelled run.",
			wrong:    "What the operator remembers was written within the time for setting it free.",
			scenario: "the Secret does not answer",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestNothingIsSettledWhileTheOperatorIsFree"),
			symptom:  "The versions in the Secret of an operator at work were overwritten.",
			wrong:    "They were written whether the operator was still held or not.",
			scenario: "somebody ends the hold and asks for 1.13.6",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestForgottenTargetIsTakenBack"),
			symptom:  "Every apply was refused because of a version that the cluster ran already.",
			wrong:    "What a run that died had asked for, and the operator left, was taken for the request of somebody else.",
			scenario: "1.33.4 to 1.35.2, killed on the way",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestNothingIsLeftToAskForWhenTheWindowCloses"),
			symptom:  "The provider crashed between two legs.",
			wrong:    "The end of the window was said with the next step of a plan that had none.",
			scenario: "a kubelet moved past the target by hand meanwhile",
		},
		{
			area: areaOperator, seen: reviewed, test: engineTest("TestFailedUpgradeOfTheOperatorIsAskedForAnew"),
			symptom:  "An operator that had failed was asked again and did not react.",
			wrong:    "Its target was taken back and set again before it could notice.",
			scenario: "worker-1 fails once; the operator looks every 5 s",
		},
	}
}
